"""What the terminal app's tests share: a frozen moment, the app on a fake service, and pictures that can fail.

The picture fixture is our own: pytest-textual-snapshot passes even when the app raised.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.pilot import Pilot

from localllm.tui.app import LocalLLMApp
from tests.support import sample_state as sample
from tests.support.fake_backend import FakeBackend
from tests.support.pilots import settle

Shown = Callable[..., AbstractAsyncContextManager[Pilot[None]]]


class SVG(SingleFileSnapshotExtension):
    file_extension = "svg"
    _write_mode = WriteMode.TEXT


@pytest.fixture
def pictures(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """Compare an SVG with the stored one: ``assert svg == pictures``."""
    return snapshot.use_extension(SVG)


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day look the same everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def nothing_unforeseen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A worker that raised something nobody foresaw fails the test, though the app went on."""
    yield
    failures = [
        r
        for r in caplog.get_records("call")
        if r.name.startswith("localllm.tui") and r.levelno >= logging.ERROR
    ]
    assert not failures, [r.getMessage() for r in failures]


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def shown(backend: FakeBackend) -> Shown:
    """``async with shown("models", (80, 24)) as pilot``: the app on the fake service, settled."""

    @asynccontextmanager
    async def run(
        screen: str = "chat",
        size: tuple[int, int] = (80, 24),
        *,
        service: FakeBackend | None = None,
        theme: str = "localllm-dark",
        low_bandwidth: bool = False,
        ascii_plots: bool = False,
        notifications: bool = False,
    ) -> AsyncIterator[Pilot[None]]:
        app = LocalLLMApp(
            (service or backend).connect,
            clock=lambda: sample.NOW,
            start_screen=screen,
            theme=theme,
            low_bandwidth=low_bandwidth,
            ascii_plots=ascii_plots,
        )
        async with app.run_test(size=size, notifications=notifications) as pilot:
            await settle(pilot)
            yield pilot

    return run
