from __future__ import annotations

import io
import sys

import click
import pytest

from localllm.cli import run
from localllm.cli.main import main
from localllm.cli.session import Remote


class Input(io.StringIO):
    def __init__(self, text: str, *, terminal: bool) -> None:
        super().__init__(text)
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("words", "piped", "prompt"),
    [
        (("What", "now?"), "", "What now?"),
        ((), "from a pipe\n", "from a pipe"),
        (("Translate:",), "bonjour\n", "Translate:\n\nbonjour"),
    ],
)
def test_words_and_what_is_piped_in_make_the_prompt(
    words: tuple[str, ...], piped: str, prompt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Input(piped, terminal=False))
    assert run._prompt(words) == prompt


def test_a_person_without_a_prompt_wants_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Input("", terminal=True))
    monkeypatch.setattr(sys, "stdout", Input("", terminal=True))
    assert run._prompt(()) is None
    opened: list[str | None] = []

    def open_app(_remote: Remote, *, model: str | None) -> int:
        opened.append(model)
        return 0

    monkeypatch.setattr("localllm.cli.app.open_app", open_app)
    assert main(["run", "tiny"]) == 0
    assert opened == ["tiny"]


def test_a_script_without_a_prompt_made_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Input("  \n", terminal=False))
    with pytest.raises(click.UsageError, match="There is no prompt"):
        run._prompt(())


def test_a_whole_disk_is_not_piped_into_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Input("x" * (5 << 20), terminal=False))
    with pytest.raises(click.UsageError, match="larger than 4 MiB"):
        run._prompt(())


@pytest.mark.parametrize(("terminal", "shown"), [(True, "a]52;b\n"), (False, "a\x1b]52;b\n")])
def test_a_terminal_gets_no_escapes_and_a_pipe_gets_everything(
    terminal: bool, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Input("", terminal=terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    printer = run._Printer(quiet=False)
    printer.write("a\x1b]52;b")
    printer.end()
    assert stream.getvalue() == shown


def test_the_last_line_is_ended_once_and_nothing_makes_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Input("", terminal=False)
    monkeypatch.setattr(sys, "stdout", stream)
    for pieces in (("whole line\n",), ("half", " a line"), ()):
        printer = run._Printer(quiet=False)
        for piece in pieces:
            printer.write(piece)
        printer.end()
    assert stream.getvalue() == "whole line\nhalf a line\n"


def test_reasoning_is_shown_to_people_and_kept_out_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, talk in ((True, "Hm.\n\n"), (False, "")):
        out, err = Input("", terminal=False), Input("", terminal=terminal)
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        monkeypatch.setenv("NO_COLOR", "1")
        printer = run._Printer(quiet=False)
        printer.write_reasoning("Hm.")
        printer.write("Yes")
        printer.end()
        assert (out.getvalue(), err.getvalue()) == ("Yes\n", talk)
