"""The terminal outside Textual's reach: what it can show, and how it is left.

Nothing is printed before the alternate screen; after the app the line is as it was, whichever way the app ended.
"""

from __future__ import annotations

import codecs
import os
import select
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

HANG_UP_GRACE_SECONDS = 2.0
HANG_UP_EXIT = 129  # 128 + SIGHUP, as shells report it
FALLBACK_HANDLER = "localllm-ascii"

# One cell for one cell, so that columns stay aligned.
_ASCII = {
    **dict.fromkeys("─━╌┄═", "-"),
    **dict.fromkeys("│┃║▌▐▎▏▊", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝", "+"),
    **dict.fromkeys("●◉•▪★⏺", "*"),
    **dict.fromkeys("○◌◦", "o"),
    **dict.fromkeys("▂▁", "."),
    **dict.fromkeys("▃▄", ":"),
    **dict.fromkeys("▅▆", "+"),
    **dict.fromkeys("▇█■", "#"),
    **dict.fromkeys("░▒▓", "-"),
    "▸": ">",
    "▾": "v",
    "◂": "<",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "⏎": "<",
    "⌫": "<",
    "…": ".",
    "–": "-",
    "—": "-",
    "·": "-",
    "×": "x",
    "✓": "v",
    "✗": "x",
    "≤": "<",
    "°": "'",
    "“": '"',
    "”": '"',
    "’": "'",
    "\u00a0": " ",
}


@dataclass(frozen=True, slots=True)
class Terminal:
    """``usable``: cursor addressing works at all. ``utf8``: it shows more than the locale's few letters."""

    usable: bool
    utf8: bool
    over_ssh: bool


def look(env: Mapping[str, str], encoding: str | None, *, is_tty: bool) -> Terminal:
    """What the environment says of the terminal; ``encoding`` is that of the stream the app is drawn on."""
    term = env.get("TERM", "")
    utf8 = codecs.lookup(encoding).name == "utf-8" if encoding else False
    return Terminal(
        usable=(is_tty and term not in ("", "dumb", "unknown")) or (is_tty and sys.platform == "win32"),
        utf8=utf8,
        over_ssh=bool(env.get("SSH_CONNECTION") or env.get("SSH_TTY")),
    )


def draw_in_ascii() -> None:
    """Let the stream that Textual draws on replace what its encoding lacks, cell for cell, instead of escaping it."""
    codecs.register_error(FALLBACK_HANDLER, _replace)
    stream = sys.__stderr__
    if stream is not None and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors=FALLBACK_HANDLER)


def end_with(fileno: int, grace_seconds: float = HANG_UP_GRACE_SECONDS) -> None:
    """End this process when the terminal behind ``fileno`` is gone, whatever the app is doing then.

    Textual writes through a thread that dies with the first failed write; after that the app may wait for it for
    ever, deaf to every signal. A thread of our own sees the hang-up, leaves time for an orderly end, and then exits.
    """
    if os.name != "posix":
        return

    def watch() -> None:
        poll = select.poll()
        poll.register(fileno, 0)  # hang-up and error are told without being asked for
        events = poll.poll()
        if events and events[0][1] & (select.POLLHUP | select.POLLERR):
            time.sleep(grace_seconds)
            os._exit(HANG_UP_EXIT)

    threading.Thread(target=watch, name="hang-up", daemon=True).start()


def reset_sequence() -> str:
    """What undoes everything the app may have switched on: mouse, paste, focus, keyboard, alternate screen, cursor."""
    off = "".join(
        f"\x1b[?{mode}l" for mode in (1000, 1002, 1003, 1006, 1015, 1016, 1004, 2004, 2026, 2048, 1049)
    )
    return f"{off}\x1b[<u\x1b[?7h\x1b[?25h\x1b[0m"


def reset() -> None:
    """Write `reset_sequence` and set the line to sane modes; for ``localllm reset-terminal`` after a SIGKILL."""
    sys.stdout.write(reset_sequence())
    sys.stdout.flush()
    if os.name == "posix" and sys.stdin.isatty():
        import subprocess

        subprocess.run(["stty", "sane"], check=False, stdin=sys.stdin)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    piece = error.object[error.start : error.end]
    return "".join(_ASCII.get(c, _braille(c)) for c in piece), error.end


def _braille(character: str) -> str:
    return ":" if "\u2800" < character <= "\u28ff" else " " if character == "\u2800" else "?"
