from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator

import pytest

from localllm.cli.output import Column, Result, colour, emit, pairs, table, to_json


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_result_is_text_or_json_never_both(capsys: pytest.CaptureFixture[str]) -> None:
    rendered: list[str] = []

    def lines() -> Iterator[str]:
        rendered.append("yes")
        yield "two models"

    result = Result("models", {"models": [1, 2]}, lines)
    emit(result, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"version": 1, "kind": "models", "data": {"models": [1, 2]}}
    assert rendered == []
    emit(result, as_json=False)
    assert capsys.readouterr().out == "two models\n"


def test_tables_align_and_drop_columns_nobody_fills() -> None:
    columns = [Column("name"), Column("size", right=True), Column("note")]
    assert list(table(columns, [("a", "1.0 GiB", None), ("longer", None, None)])) == [
        "name       size",
        "a       1.0 GiB",
        "longer        –",
    ]


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (80, ["name", "size", "note", "more"]),
        (21, ["name", "size", "note"]),
        (15, ["name", "size"]),
        (5, ["name", "size"]),
    ],
)
def test_a_narrow_terminal_goes_without_what_can_be_spared(
    width: int, titles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    columns = [Column("name"), Column("size"), Column("note", spare=1), Column("more", spare=2)]
    header, row = table(columns, [("a", "1", "n", "m")])
    assert header.split() == titles
    assert len(row.split()) == len(titles)


def test_hostile_names_cannot_reach_the_terminal() -> None:
    evil = "a\x1b]0;title\x07\x1b[2Jb\nc\u202e"
    assert list(table([Column("name")], [(evil,)])) == ["name", "a]0;title[2Jb c"]
    assert list(pairs([("name", "x\x9b1m"), ("none", None)])) == ["name  x1m"]
    assert "\\u001b" in to_json("x", evil)


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    assert colour(Terminal())
    assert not colour(io.StringIO())
    monkeypatch.setenv(variable, value)
    assert not colour(Terminal())
