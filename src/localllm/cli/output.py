"""stdout: the one place where a command's result becomes text or JSON.

A verb makes a ``Result``: what it found, as data, and how a person reads it. ``emit`` prints one or the other, so the
two can never tell different things. JSON comes in an envelope with a version: fields may be added to ``data``; a
change that would break a reader raises the number. Everything printed passes ``clean_text``: names and metadata come
from files that others made.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

import msgspec

from localllm.tui.sanitise import clean_text

ENVELOPE_VERSION = 1

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


@dataclass(frozen=True)
class Result:
    """``kind`` names the shape of ``data`` for programs; ``lines`` makes what a person reads, only when asked."""

    kind: str
    data: object
    lines: Callable[[], Iterator[str]]


def emit(result: Result, *, as_json: bool) -> None:
    """Print ``result`` to stdout."""
    if as_json:
        print(to_json(result.kind, result.data))
        return
    for line in result.lines():
        print(line)


def to_json(kind: str, data: object) -> str:
    """The versioned envelope, indented: ``{"version": 1, "kind": …, "data": …}``."""
    envelope = {"version": ENVELOPE_VERSION, "kind": kind, "data": data}
    return msgspec.json.format(msgspec.json.encode(envelope)).decode()


def colour(stream: TextIO | None = None) -> bool:
    """Whether to colour: a terminal that can, and nobody who said no (https://no-color.org)."""
    stream = sys.stdout if stream is None else stream
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, style: str | None, stream: TextIO | None = None) -> str:
    """``text`` in one of bold, dim, red, green, yellow, where the stream takes colours."""
    if style is None or not colour(stream):
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


@dataclass(frozen=True)
class Column:
    """``right`` aligns figures; ``style`` may depend on the cell's text."""

    title: str
    right: bool = False
    style: Callable[[str], str | None] | None = None


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | None]]) -> Iterator[str]:
    """Aligned columns, two spaces apart; None prints as a dash. Columns without any value are left out."""
    kept = [index for index in range(len(columns)) if not rows or any(row[index] for row in rows)]
    cells = [[clean_text(row[index] or "–").replace("\n", " ") for index in kept] for row in rows]
    shown = [columns[index] for index in kept]
    widths = [
        max(len(column.title), *(len(row[place]) for row in cells)) if cells else len(column.title)
        for place, column in enumerate(shown)
    ]
    yield _join(
        [_pad(column.title, width, column.right) for column, width in zip(shown, widths, strict=True)], "dim"
    )
    for row in cells:
        yield _join(
            [
                _styled(_pad(cell, width, column.right), column.style and column.style(cell))
                for cell, column, width in zip(row, shown, widths, strict=True)
            ]
        )


def pairs(rows: Sequence[tuple[str, str | None]]) -> Iterator[str]:
    """``name  value`` lines with the values aligned; those that are None are left out."""
    present = [(name, value) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in present), default=0)
    for name, value in present:
        yield f"{paint(name.ljust(width), 'dim')}  {clean_text(value)}"


def _pad(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _styled(text: str, style: str | None) -> str:
    return paint(text, style) if style else text


def _join(cells: Sequence[str], style: str | None = None) -> str:
    line = "  ".join(cells).rstrip()
    return paint(line, style)
