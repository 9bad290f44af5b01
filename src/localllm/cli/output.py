"""stdout: the one place where a command's result becomes text or JSON.

A verb makes a ``Result``: what it found, as data, and how a person reads it. ``emit`` prints one or the other, so the
two can never tell different things. JSON comes in an envelope with a version: fields may be added to ``data``; a
change that would break a reader raises the number. Everything printed passes ``clean_text``: names and metadata come
from files that others made.
"""

from __future__ import annotations

import os
import shutil
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


def print_line(kind: str, data: object) -> None:
    """The same envelope on one line, for what comes bit by bit: one JSON value a line."""
    print(msgspec.json.encode({"version": ENVELOPE_VERSION, "kind": kind, "data": data}).decode(), flush=True)


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
    """``right`` aligns figures; ``style`` may depend on the cell's text.

    ``spare`` ranks what a narrow terminal can do without: the highest goes first, 0 never goes.
    """

    title: str
    right: bool = False
    style: Callable[[str], str | None] | None = None
    spare: int = 0


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | None]]) -> Iterator[str]:
    """Aligned columns, two spaces apart; None prints as a dash.

    Columns without any value are left out, and on a terminal those that it has no room for and that can be spared.
    """
    cells = [[clean_text(cell or "–").replace("\n", " ") for cell in row] for row in rows]
    widths = [
        max([len(column.title), *(len(row[index]) for row in cells)]) for index, column in enumerate(columns)
    ]
    kept = [index for index in range(len(columns)) if not rows or any(row[index] for row in rows)]
    kept = _narrowed(kept, columns, widths, _room())
    yield paint("  ".join(_pad(columns[i].title, widths[i], columns[i].right) for i in kept).rstrip(), "dim")
    for row in cells:
        yield "  ".join(
            _styled(_pad(row[i], widths[i], columns[i].right), columns[i].style, row[i]) for i in kept
        ).rstrip()


def _room() -> int | None:
    """Columns of the terminal; None when the output goes elsewhere, where nothing is too wide."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _narrowed(
    kept: list[int], columns: Sequence[Column], widths: Sequence[int], room: int | None
) -> list[int]:
    def taken(indices: Sequence[int]) -> int:
        return sum(widths[index] + 2 for index in indices) - 2

    while room is not None and taken(kept) > room:
        spared = max(kept, key=lambda index: columns[index].spare)
        if columns[spared].spare == 0:
            break
        kept = [index for index in kept if index != spared]
    return kept


def pairs(rows: Sequence[tuple[str, str | None]]) -> Iterator[str]:
    """``name  value`` lines with the values aligned; those that are None are left out."""
    present = [(name, value) for name, value in rows if value is not None]
    width = max((len(name) for name, _ in present), default=0)
    for name, value in present:
        yield f"{paint(name.ljust(width), 'dim')}  {clean_text(value)}"


def _pad(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _styled(padded: str, style: Callable[[str], str | None] | None, cell: str) -> str:
    return paint(padded, style(cell)) if style else padded
