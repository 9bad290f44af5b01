"""On which line of a TOML file a key is set: what ``tomllib`` does not say and an error message must.

A scanner, not a parser: it is only asked about files that ``tomllib`` accepted, and it needs no more than to tell
keys from values, so it skips strings, comments and everything inside brackets.
"""

from __future__ import annotations

import re

_KEY = re.compile(
    r"""\s*(?P<key>(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*'))*)\s*="""
)
_TABLE = re.compile(r"\s*\[\[?(?P<key>[^\]\n]+)\]\]?\s*(?:#.*)?$")
_PART = re.compile(r""""([^"\n]*)"|'([^'\n]*)'|([A-Za-z0-9_-]+)""")
_SKIP = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[\[\]{}]')


def key_lines(text: str) -> dict[str, int]:
    """1-based line of every table header and every key in ``text``, by dotted path.

    Keys of an inline table are not looked into: ask for the key that holds the table.
    """
    lines: dict[str, int] = {}
    table: tuple[str, ...] = ()
    pending = _Value()
    for number, line in enumerate(text.splitlines(), start=1):
        if pending.open:
            pending.feed(line)
            continue
        if header := _TABLE.match(line):
            table = _parts(header["key"])
            lines.setdefault(".".join(table), number)
        elif assignment := _KEY.match(line):
            lines.setdefault(".".join((*table, *_parts(assignment["key"]))), number)
            pending.feed(line[assignment.end() :])
    return lines


class _Value:
    """Whether a value that began on an earlier line still goes on."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote: str | None = None

    @property
    def open(self) -> bool:
        return self._depth > 0 or self._quote is not None

    def feed(self, text: str) -> None:
        position = 0
        while True:
            if self._quote is not None:
                end = text.find(self._quote, position)
                if end < 0:
                    return
                position = end + 3
                self._quote = None
            token = _SKIP.search(text, position)
            if token is None:
                return
            position = token.end()
            if token[0] in ('"""', "'''"):
                self._quote = token[0]
            elif token[0] in "[{":
                self._depth += 1
            elif token[0] in "]}":
                self._depth -= 1


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple("".join(groups) for groups in _PART.findall(dotted))
