"""What every generated page shares."""

from __future__ import annotations

HEAD = "<!-- Written by docs/generate.py from the code; edit that instead. -->\n"


def cell(text: str) -> str:
    """``text`` fit for a cell of a table: one line, no bars, code marked the Markdown way."""
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")
