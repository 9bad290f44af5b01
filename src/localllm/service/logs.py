"""The service's log: JSON lines in a rotating file, written by a thread of its own, with request ids and never content.

Only fields that a caller names are written, so a prompt or a key gets into the log by nobody's accident. Configured
by the command line alone; other code just asks for its logger.
"""

from __future__ import annotations

import logging
import logging.handlers
import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from localllm.settings.private import secure_folder

MAX_BYTES = 10 << 20
FILES = 5
_REPEATS_WITHIN_S = 10.0
_REPEATS = 20

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, and the fields of ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({k: v for k, v in vars(record).items() if k not in _STANDARD and v is not None})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class LimitRepeats(logging.Filter):
    """Lets the same message through twenty times in ten seconds, then only counts it."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        key = (record.name, record.lineno, str(record.msg))
        began, count = self._seen.get(key, (record.created, 0))
        if record.created - began > _REPEATS_WITHIN_S:
            if count > _REPEATS:
                record.dropped_before = count - _REPEATS
            began, count = record.created, 0
        self._seen[key] = (began, count + 1)
        return count < _REPEATS or record.levelno >= logging.CRITICAL


@contextmanager
def logging_to(path: Path, level: str) -> Iterator[None]:
    """Log to ``path`` while open. The event loop only queues; a full disk loses lines, never requests."""
    secure_folder(path.parent)
    path.touch(mode=0o600, exist_ok=True)
    file = logging.handlers.RotatingFileHandler(
        path, maxBytes=MAX_BYTES, backupCount=FILES - 1, encoding="utf-8"
    )
    file.setFormatter(JsonLines())
    lines: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = _Queued(lines)
    handler.addFilter(LimitRepeats())
    listener = logging.handlers.QueueListener(lines, file)
    root = logging.getLogger()
    before, logging.raiseExceptions = root.level, False
    root.addHandler(handler)
    root.setLevel(level.upper())
    for noisy in ("httpx", "httpcore", "uvicorn", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    listener.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        listener.stop()
        file.close()


def tail(path: Path, lines: int, *, max_bytes: int = 1 << 20) -> str:
    """The last ``lines`` lines of a text file, from at most its last ``max_bytes``; "" when it is not there."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - max_bytes))
            text = file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:]) + "\n" if text else ""


class _Queued(logging.handlers.QueueHandler):
    """Hands records on as they are: the formatter wants their fields, which the stock handler throws away."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record
