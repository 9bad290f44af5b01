"""Takes what a child writes to stderr and keeps it from doing harm: one thread from a pipe to a rotated log file.

A child that logs without end, a line of ten megabytes or bytes that are no text must neither block the child, nor
fill the disk, nor reach the event loop. So a thread of its own reads the pipe, cuts long lines, sums up repeated
ones, drops what comes faster than anyone could want, and keeps the last 8 KB for the report of a crash.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

TAIL_BYTES = 8 << 10
_LONGEST_LINE = 16 << 10
_CHUNK = 64 << 10
_REPEATS = 20
_BURST_BYTES = 4 << 20
_BYTES_PER_SECOND = 256 << 10
_RETRY_AFTER_S = 30.0
_DIGITS = re.compile(r"\d+")
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if code != 0x09}


class RotatedFile:
    """``path`` is the newest; ``path.1`` … are older. A full disk or a missing folder costs lines, never an error."""

    def __init__(self, path: Path, *, max_bytes: int = 10 << 20, files: int = 5) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._files = files
        self._file: BinaryIO | None = None
        self._size = 0
        self._retry_at_s = 0.0

    def write(self, text: str) -> None:
        try:
            file = self._open()
            if file is None:
                return
            data = text.encode("utf-8", "replace")
            file.write(data)
            file.flush()
            self._size += len(data)
            if self._size >= self._max_bytes:
                self._rotate()
        except OSError:
            self.close()
            self._retry_at_s = time.monotonic() + _RETRY_AFTER_S

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError:
                return  # the disk is full; the lines are lost

    def _open(self) -> BinaryIO | None:
        if self._file is None and time.monotonic() >= self._retry_at_s:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._file = os.fdopen(descriptor, "ab")
            self._size = self._file.tell()
        return self._file

    def _rotate(self) -> None:
        self.close()
        for number in range(self._files - 1, 0, -1):
            newer = self._numbered(number - 1)
            if newer.exists():
                newer.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self._path if number == 0 else self._path.with_name(f"{self._path.name}.{number}")


class LogPump:
    """Reads ``descriptor`` (and owns it) until its end. ``on_line`` is called on the pump's thread, before any limit."""

    def __init__(
        self,
        descriptor: int,
        file: RotatedFile,
        *,
        on_line: Callable[[str], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._descriptor = descriptor
        self._file = file
        self._on_line = on_line
        self._on_end = on_end
        self._tail = b""
        self._partial = b""
        self._partial_cut = 0
        self._shape = ""
        self._repeats = 0
        self._budget = float(_BURST_BYTES)
        self._budget_at_s = time.monotonic()
        self._dropped_bytes = 0
        self._thread = threading.Thread(target=self._run, name="engine-log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def tail(self) -> str:
        """The last 8 KB, as text without control characters other than line ends."""
        lines = self._tail.decode("utf-8", "replace").splitlines()
        return "\n".join(line.translate(_CONTROLS) for line in lines)

    def _run(self) -> None:
        try:
            with os.fdopen(self._descriptor, "rb", buffering=0) as pipe:
                while chunk := pipe.read(_CHUNK):
                    self._feed(chunk)
            self._finish()
        finally:
            self._file.close()
            if self._on_end is not None:
                self._on_end()

    def _feed(self, chunk: bytes) -> None:
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        if not self._afford(len(chunk)):
            self._dropped_bytes += len(chunk)
            self._partial, self._partial_cut = b"", 0
            return
        if self._dropped_bytes:
            self._file.write(f"... {self._dropped_bytes} bytes were logged too fast and dropped\n")
            self._dropped_bytes = 0
        *lines, rest = (self._partial + chunk).split(b"\n")
        for line in lines:
            self._line(line, self._partial_cut)
            self._partial_cut = 0
        if len(rest) > _LONGEST_LINE:
            self._partial_cut += len(rest) - _LONGEST_LINE
            rest = rest[:_LONGEST_LINE]
        self._partial = rest

    def _line(self, raw: bytes, cut: int) -> None:
        cut += max(0, len(raw) - _LONGEST_LINE)
        line = raw[:_LONGEST_LINE].decode("utf-8", "replace").translate(_CONTROLS)
        if self._on_line is not None:
            self._on_line(line)
        shape = _DIGITS.sub("#", line)
        if shape == self._shape:
            self._repeats += 1
        else:
            self._sum_up()
            self._shape, self._repeats = shape, 0
        if self._repeats < _REPEATS:
            self._file.write(f"{line} ... {cut} more bytes\n" if cut else f"{line}\n")

    def _sum_up(self) -> None:
        if self._repeats >= _REPEATS:
            self._file.write(f"... {self._repeats - _REPEATS + 1} more lines like this one\n")

    def _finish(self) -> None:
        if self._partial:
            self._line(self._partial, self._partial_cut)
        self._sum_up()
        if self._dropped_bytes:
            self._file.write(f"... {self._dropped_bytes} bytes were logged too fast and dropped\n")

    def _afford(self, size: int) -> bool:
        now_s = time.monotonic()
        self._budget = min(_BURST_BYTES, self._budget + (now_s - self._budget_at_s) * _BYTES_PER_SECOND)
        self._budget_at_s = now_s
        if self._budget < size:
            return False
        self._budget -= size
        return True
