from __future__ import annotations

import asyncio
import logging

import pytest

from localllm.core.errors import NotFound
from localllm.service.background import Background


async def test_one_failure_is_logged_and_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()

    async def fails() -> None:
        raise RuntimeError("boom")

    async def works() -> None:
        done.set()

    async with Background() as background:
        background.spawn(fails(), name="the failing one")
        await asyncio.sleep(0)
        background.spawn(works(), name="the other")
        await asyncio.wait_for(done.wait(), 5)
    (line,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert line.__dict__["task"] == "the failing one"


async def test_what_still_runs_is_cancelled_on_the_way_out() -> None:
    ended: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async with Background() as background:
        background.spawn(forever(), name="forever")
        await asyncio.sleep(0)
    assert ended == ["cancelled"]


async def test_an_error_of_the_body_stays_what_it_is() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NotFound):
        async with Background() as background:
            background.spawn(forever(), name="forever")
            raise NotFound("x")


async def test_nothing_is_started_after_the_end() -> None:
    async def work() -> None:
        raise AssertionError("must not run")

    async with Background() as background:
        pass
    with pytest.raises(RuntimeError, match="closing"):
        background.spawn(work(), name="late")
