"""Text from models, files and errors is shown as text: no escape sequence, no markup, no fetch."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from textual.strip import Strip

from localllm.core.control import ModelSummary, Notice
from localllm.core.errors import EngineCrashed
from tests.support import sample_state as sample
from tests.support.fake_backend import FakeBackend
from tests.support.pilots import press, settle
from tests.tui.conftest import Shown

EVIL = "\x1b[31m\x1b]0;pwned\x07\x9b2J\u202egnp.exe [bold red]x[/bold red] [link=http://evil]c[/link] $accent"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ODD = (
    "שלום עולם",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "e\u0301\u0302\u0303" * 50,
    "漢字" * 200,
    "\u200b" * 40,
    "\ud800",
    "a\r\nb\tc",
)


def hostile(text: str) -> FakeBackend:
    """A service in which every text that others wrote is ``text``."""
    model = ModelSummary(name=text, quant=text, size_bytes=1, architecture=text, owner=text, problem=text)
    state = msgspec.structs.replace(
        sample.STATE,
        models=(model,),
        instances=(msgspec.structs.replace(sample.QWEN, model=text, error=text, stage=text),),
        requests=(msgspec.structs.replace(sample.REQUESTS[0], model=text, client=text, endpoint=text),),
        devices=(msgspec.structs.replace(sample.CPU, name=text, throttled=text),),
        notices=(Notice(code="x", level="warning", text=text, since=1.0),),
    )
    messages = tuple(
        msgspec.structs.replace(m, content=text, reasoning=text, error=text) for m in sample.CHAT.messages
    )
    summary = msgspec.structs.replace(sample.CHAT.summary, title=text, match=text)
    backend = FakeBackend(
        state, chats=(msgspec.structs.replace(sample.CHAT, summary=summary, messages=messages),)
    )
    backend.summaries = [summary]
    return backend


def screen_text(app: Any) -> str:
    strips: list[Strip] = app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


@pytest.mark.parametrize("text", [EVIL, *ODD], ids=["escapes", *[f"odd{i}" for i in range(len(ODD))]])
@pytest.mark.parametrize("mode", ["chat", "models", "monitor", "server", "settings"])
async def test_nothing_hostile_reaches_the_terminal(shown: Shown, mode: str, text: str) -> None:
    async with shown(mode, (120, 40), service=hostile(text)) as pilot:
        await press(pilot, "escape")
        drawn = screen_text(pilot.app)
        assert not CONTROLS.search(drawn.replace("\n", ""))
        assert drawn.encode("utf-8")


async def test_markup_is_shown_as_it_was_written(shown: Shown) -> None:
    async with shown("monitor", (200, 40), service=hostile("[bold red]x[/bold red]")) as pilot:
        assert "[bold red]x" in screen_text(pilot.app)


async def test_an_error_message_is_cleaned_too(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models", notifications=True) as pilot:
        backend.fail_with = EngineCrashed(f"It died: {EVIL}", hint=EVIL)
        await press(pilot, "enter")
        await pilot.pause(0.3)
        drawn = screen_text(pilot.app)
        assert "It died" in drawn
        assert not CONTROLS.search(drawn.replace("\n", ""))


async def test_markdown_opens_and_fetches_nothing(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url, *a, **k: opened.append(url))
    text = (
        "![pixel](http://sink.invalid/x.png) [click](http://sink.invalid/y) <img src='http://sink.invalid/z'>"
    )
    async with shown(size=(120, 40), service=hostile(text)) as pilot:
        for x in (38, 44, 52, 60):
            for y in (3, 4, 5, 6):
                await pilot.click(offset=(x, y))
        await settle(pilot)
    assert opened == []


async def test_a_line_of_a_megabyte_is_survived(shown: Shown) -> None:
    async with shown(service=hostile("word " * 200_000)) as pilot:
        await settle(pilot)
        assert "word word" in screen_text(pilot.app)
