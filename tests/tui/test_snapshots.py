"""How it looks: every screen at 80×24 and 120×40, and the states that a person meets first. Looks, not logic."""

from __future__ import annotations

import msgspec
import pytest
from syrupy.assertion import SnapshotAssertion

from localllm.core.control import InstancePhase
from tests.support import sample_state as sample
from tests.support.fake_backend import FakeBackend
from tests.support.pilots import press, settle
from tests.tui.conftest import Shown

SIZES = [(80, 24), (120, 40)]


def named(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


@pytest.mark.parametrize("size", SIZES, ids=named)
@pytest.mark.parametrize("mode", ["chat", "models", "monitor", "server", "settings"])
async def test_screens(shown: Shown, pictures: SnapshotAssertion, mode: str, size: tuple[int, int]) -> None:
    async with shown(mode, size) as pilot:
        await settle(pilot)
        assert pilot.app.export_screenshot(simplify=True) == pictures


@pytest.mark.parametrize("theme", ["localllm-light", "localllm-high-contrast"])
async def test_themes(shown: Shown, pictures: SnapshotAssertion, theme: str) -> None:
    async with shown("models", theme=theme) as pilot:
        await settle(pilot)
        assert pilot.app.export_screenshot(simplify=True) == pictures


@pytest.mark.parametrize("mode", ["chat", "monitor"])
async def test_sixty_by_twenty(shown: Shown, pictures: SnapshotAssertion, mode: str) -> None:
    async with shown(mode, (60, 20)) as pilot:
        await settle(pilot)
        assert pilot.app.export_screenshot(simplify=True) == pictures


async def test_first_start(shown: Shown, pictures: SnapshotAssertion) -> None:
    """Nothing loaded, no chat, no GPU: what a newcomer sees."""
    async with shown(service=FakeBackend(sample.IDLE, chats=())) as pilot:
        await settle(pilot)
        assert pilot.app.export_screenshot(simplify=True) == pictures


async def test_trouble(shown: Shown, pictures: SnapshotAssertion) -> None:
    """A crashed engine on a card that throttles, its memory nearly full, and the line lost on top."""
    crashed = msgspec.structs.replace(sample.QWEN, phase=InstancePhase.CRASHED)
    full = msgspec.structs.replace(sample.GPU, memory_used_bytes=int(7.7 * (1 << 30)), throttled="thermal")
    backend = FakeBackend(
        msgspec.structs.replace(sample.STATE, instances=(crashed,), devices=(sample.CPU, full))
    )
    async with shown("monitor", service=backend) as pilot:
        backend.cut("connection refused")
        await settle(pilot)
        assert pilot.app.export_screenshot(simplify=True) == pictures


async def test_help(shown: Shown, pictures: SnapshotAssertion) -> None:
    async with shown() as pilot:
        await press(pilot, "escape", "question_mark")
        assert pilot.app.export_screenshot(simplify=True) == pictures


async def test_getting_a_model(shown: Shown, pictures: SnapshotAssertion) -> None:
    async with shown("models") as pilot:
        await press(pilot, "g", "enter", "enter")
        assert pilot.app.export_screenshot(simplify=True) == pictures
