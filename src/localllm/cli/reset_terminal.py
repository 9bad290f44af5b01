"""``localllm reset-terminal``: undo what a terminal app sets, for one that was killed before it could."""

from __future__ import annotations

import os
import sys

import click

_RESTORE = (
    "\x1b[?1049l"  # leave the alternate screen
    "\x1b[?25h"  # show the cursor
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # stop mouse reports
    "\x1b[?2004l"  # stop bracketed paste
    "\x1b[?1004l"  # stop focus reports
    "\x1b[<u"  # leave the Kitty keyboard protocol
    "\x1b[?7h"  # wrap lines
    "\x1b[0m"  # no colours
)


@click.command()
def command() -> None:
    """Mend a terminal that shows no cursor, prints mouse codes or swallows what you type."""
    if os.name == "posix" and sys.stdin.isatty():
        import subprocess

        subprocess.run(["stty", "sane"], check=False)
    if sys.stdout.isatty():
        sys.stdout.write(_RESTORE)
        sys.stdout.flush()
