from __future__ import annotations

import io
import sys

import pytest

from localllm.cli.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_a_bar_that_goes_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressLine() as line:
        line.show("Loading x", 0.5)
        line.show("Loading x", 0.5)
        line.show("evil \x1b]0;t\x07")
    drawn = stream.getvalue().split("\r\x1b[K")
    assert drawn == ["", "Loading x  ████████████░░░░░░░░░░░░  50%", "evil ]0;t", ""]


def test_a_file_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressLine() as line:
        line.show("Loading x", 2.0)
    assert stream.getvalue() == ""
