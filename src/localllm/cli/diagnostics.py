"""stderr and exit codes: how a command that did not work says so.

Every ``LocalLLMError`` becomes one worded line and, where there is one, a hint; its class decides the exit code.
Anything else is our mistake: the person gets a short line and the file where the whole of it is written down.
"""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path

import click

from localllm.cli.output import paint, to_json
from localllm.core import errors
from localllm.core.errors import LocalLLMError
from localllm.tui.sanitise import clean_text

SUCCESS = 0
FAILURE = 1
USAGE = 2
INTERNAL = 70
INTERRUPTED = 130

EXIT_CODES: dict[type[LocalLLMError], int] = {
    errors.ConfigError: USAGE,
    errors.BadRequest: USAGE,
    errors.BadName: USAGE,
    errors.AlreadyRunning: 3,
    errors.ModelNotFound: 4,
    errors.ModelAmbiguous: 4,
    errors.NotFound: 4,
    errors.NotRunning: 5,
    errors.ShuttingDown: 5,
    errors.PortInUse: 6,
    errors.DoesNotFit: 7,
    errors.OutOfMemory: 7,
    errors.DiskFull: 7,
    errors.GGUFError: 8,
    errors.StoreCorrupt: 8,
    errors.ChecksumMismatch: 8,
    errors.EngineError: 9,
    errors.Unauthorized: 10,
    errors.Forbidden: 10,
    errors.LimitError: 11,
}
"""By class; the nearest ancestor counts, and what is not listed is 1."""

EXIT_MEANINGS: dict[int, str] = {
    SUCCESS: "done",
    FAILURE: "failed, with a message",
    USAGE: "the command line, a setting or the request is wrong",
    3: "another service of this user runs already",
    4: "no such model (or whatever was named), or several of that name",
    5: "the service is not running",
    6: "the port is in use",
    7: "not enough memory, or not enough disk",
    8: "a file is damaged, or is no model",
    9: "the engine failed",
    10: "no key, or the wrong one",
    11: "a limit was reached; try again later",
    INTERNAL: "a mistake inside localllm; the details are in cli.log in the log folder",
    INTERRUPTED: "interrupted with Ctrl-C",
}


def exit_code(error: LocalLLMError) -> int:
    """The exit code of ``error``: its own class's, else its nearest ancestor's."""
    for cls in type(error).__mro__:
        if cls in EXIT_CODES:
            return EXIT_CODES[cls]
    return FAILURE


def say(text: str) -> None:
    """Talk to the person: one line on stderr, so that stdout stays data."""
    print(clean_text(text), file=sys.stderr, flush=True)


def report(error: LocalLLMError, *, as_json: bool = False) -> int:
    """Print ``error`` and return its exit code; with ``as_json`` also as an envelope on stdout, for programs."""
    label = paint("Error:", "red", sys.stderr)
    print(f"{label} {clean_text(error.message)}", file=sys.stderr)
    ways = _ways_out(error)
    if error.hint and not (ways and all(way in error.hint for way in ways)):
        print(clean_text(error.hint), file=sys.stderr)
    for way in ways:
        print(f"  - {clean_text(way)}", file=sys.stderr)
    if as_json:
        body = {"code": error.code, "message": error.message, "hint": error.hint, "details": error.details}
        print(to_json("error", body))
    return exit_code(error)


def report_usage(error: click.ClickException) -> int:
    """What click found wrong with the command line, with the way to the right help."""
    print(f"{paint('Error:', 'red', sys.stderr)} {clean_text(error.format_message())}", file=sys.stderr)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        print(f"Help: {error.ctx.command_path} --help", file=sys.stderr)
    return error.exit_code


def report_unexpected(error: BaseException, log_file: Path) -> int:
    """A failure nobody worded: a line for the person, the traceback for ``log_file``."""
    text = "".join(traceback.format_exception(error))
    kept = _append(log_file, text)
    say(f"Something went wrong inside localllm ({type(error).__name__}).")
    say(f"The details are in {log_file}; please report it together with them." if kept else text)
    return INTERNAL


def _ways_out(error: LocalLLMError) -> list[str]:
    ways = error.details.get("ways_out")
    return [str(way) for way in ways] if isinstance(ways, list | tuple) else []


def _append(path: Path, text: str) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("a", encoding="utf-8") as file:
            file.write(time.strftime("%Y-%m-%dT%H:%M:%S ") + " ".join(sys.argv[:2]) + "\n" + text + "\n")
    except OSError:
        return False
    return True
