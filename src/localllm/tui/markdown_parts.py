"""Long Markdown in parts that are laid out on their own.

Laying out a Markdown widget costs as much as it has blocks, at every redraw of a reply that grows; cut into parts,
only the last one does. A cut never moves when text is added, so parts before the last are final.
"""

from __future__ import annotations

import re

PART_CHARACTERS = 2000

# A line that surely begins a block of its own: no indent, no list, quote, table, HTML or digit that may be a list.
_FRESH = re.compile(r"[^\s\-*+>|<`~\d=]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def split_markdown(text: str, limit: int = PART_CHARACTERS) -> list[str]:
    """``text`` cut before paragraphs and headings, each part at least ``limit`` long but the last.

    The parts joined are the text. Nothing is cut inside a fence, a list or a table; a text without a good place
    stays whole.
    """
    parts: list[str] = []
    start = at = 0
    fence: str | None = None
    after_blank = False
    for line in text.splitlines(keepends=True):
        if fence is None and after_blank and at - start >= limit and _FRESH.match(line):
            parts.append(text[start:at])
            start = at
        mark = _FENCE.match(line)
        if mark is not None:
            fence = _fence_after(fence, mark.group(1), line)
        after_blank = not line.strip()
        at += len(line)
    parts.append(text[start:])
    return parts


def _fence_after(fence: str | None, mark: str, line: str) -> str | None:
    """The fence that is open after a line that begins with ``mark``."""
    if fence is None:
        return mark
    closes = mark[0] == fence[0] and len(mark) >= len(fence) and not line.strip().strip(mark[0])
    return None if closes else fence
