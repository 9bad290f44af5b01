from __future__ import annotations

import io
import unicodedata

import pytest

from localllm.core.errors import LocalLLMError
from localllm.tui import terminal
from localllm.tui.main import NoTerminal, run_app
from localllm.tui.terminal import FALLBACK_HANDLER, look, reset_sequence


@pytest.mark.parametrize("term", ["", "dumb", "unknown"])
def test_a_dumb_terminal_is_not_drawn_on(term: str) -> None:
    assert not look({"TERM": term}, "utf-8", is_tty=True).usable


def test_a_pipe_is_no_terminal() -> None:
    assert not look({"TERM": "xterm"}, "utf-8", is_tty=False).usable


@pytest.mark.parametrize(
    ("encoding", "utf8"),
    [("utf-8", True), ("UTF8", True), ("latin-1", False), ("ascii", False), (None, False)],
)
def test_the_encoding_decides_what_is_drawn(encoding: str | None, utf8: bool) -> None:
    assert look({"TERM": "xterm"}, encoding, is_tty=True).utf8 is utf8


def test_ssh_is_noticed() -> None:
    assert look({"TERM": "xterm", "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}, "utf-8", is_tty=True).over_ssh


def test_ascii_replacements_are_one_cell_for_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.__stderr__", stream)
    terminal.draw_in_ascii()
    shown = "╭─ Chats ─╮ ▁▂▃▄▅▆▇█ ━━── ⣿⡀ ● ▸ ◂ é 漢"
    out = shown.encode("ascii", errors=FALLBACK_HANDLER).decode("ascii")
    assert len(out) == len(shown)
    assert out.startswith("+- Chats -+")
    for character, replacement in terminal._ASCII.items():
        assert len(replacement) == 1
        assert replacement.isascii()
        assert unicodedata.east_asian_width(character) not in "WF"


def test_the_reset_undoes_what_the_app_switches_on() -> None:
    for mode in ("1000", "1006", "2004", "1004", "1049"):
        assert f"\x1b[?{mode}l" in reset_sequence()
    assert "\x1b[?25h" in reset_sequence()


def test_without_a_terminal_the_app_says_what_else_there_is() -> None:
    with pytest.raises(NoTerminal) as caught:
        run_app(env={"TERM": "xterm"})
    assert isinstance(caught.value, LocalLLMError)
    assert caught.value.hint is not None
    assert "localllm" in caught.value.hint
