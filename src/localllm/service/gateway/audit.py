"""The audit log: one JSON line per request, each bound to the one before by a hash, so that none can be changed or taken out.

``hash`` of a line is SHA-256 over the previous hash and the line without its own. A new file begins with the last hash of
the file before. What is logged are facts about a request (who, when, which model, how it ended), never its content.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from localllm.core.errors import StoreCorrupt

ROTATE_BYTES = 16 << 20
GENESIS = "0" * 64


class AuditEntry(Struct, frozen=True, kw_only=True):
    """One request. ``key`` is the key's name, never the key. ``at`` is Unix seconds."""

    at: float
    request_id: str
    key: str | None
    client: str | None
    endpoint: str
    model: str
    status: int
    error_code: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    masked: dict[str, int] = {}
    policies: tuple[str, ...] = ()


class Line(Struct, frozen=True, kw_only=True):
    previous: str
    entry: AuditEntry
    hash: str = ""


class Fault(Struct, frozen=True):
    """Line ``number`` (from 1) of ``file`` does not fit to what comes before it."""

    file: str
    number: int
    reason: str


class AuditLog:
    """Appends to ``folder/audit.jsonl``; a full one becomes ``audit-NNNNNN.jsonl``. One writer."""

    def __init__(self, folder: Path, *, rotate_bytes: int = ROTATE_BYTES) -> None:
        self._folder = folder
        self._rotate_bytes = rotate_bytes
        self._previous: str | None = None

    @property
    def path(self) -> Path:
        return self._folder / "audit.jsonl"

    def append(self, entry: AuditEntry) -> None:
        """Write and flush one line.

        Raises:
            StoreCorrupt: the end of the log cannot be read, so nothing can be bound to it.
            OSError: the disk refuses.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self._previous is None:
            self._previous = self._last_hash()
        line = bound(self._previous, entry)
        descriptor = os.open(
            self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600
        )
        try:
            os.write(descriptor, msgspec.json.encode(line) + b"\n")
            os.fsync(descriptor)
            full = os.fstat(descriptor).st_size >= self._rotate_bytes
        finally:
            os.close(descriptor)
        self._previous = line.hash
        if full:
            self.path.rename(self._folder / f"audit-{len(self._older()) + 1:06d}.jsonl")

    def verify(self) -> tuple[int, Fault | None]:
        """Lines that hold, and the first that does not (None = all do)."""
        previous, good = GENESIS, 0
        for file, number, raw in self._lines():
            try:
                line = msgspec.json.decode(raw, type=Line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return good, Fault(file.name, number, "it is not a line of the log")
            if line.previous != previous:
                return good, Fault(file.name, number, "a line before it is missing or was changed")
            if line.hash != bound(previous, line.entry).hash:
                return good, Fault(file.name, number, "it was changed")
            previous, good = line.hash, good + 1
        return good, None

    def _lines(self) -> Iterator[tuple[Path, int, bytes]]:
        for file in (*self._older(), self.path):
            if file.exists():
                with file.open("rb") as lines:
                    for number, raw in enumerate(lines, start=1):
                        yield file, number, raw

    def _older(self) -> list[Path]:
        return sorted(self._folder.glob("audit-*.jsonl"))

    def _last_hash(self) -> str:
        last: bytes | None = None
        for file in reversed([*self._older(), self.path]):
            if file.exists() and (lines := file.read_bytes().splitlines()):
                last = lines[-1]
                break
        if last is None:
            return GENESIS
        try:
            return msgspec.json.decode(last, type=Line).hash
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StoreCorrupt(
                f"The last line of the audit log in {self._folder} is damaged.",
                hint="localllm audit verify names the line; move the file aside to begin a new log.",
            ) from error


def bound(previous: str, entry: AuditEntry) -> Line:
    """The line that follows ``previous``."""
    line = Line(previous=previous, entry=entry)
    return structs.replace(
        line, hash=hashlib.sha256(previous.encode() + msgspec.json.encode(entry)).hexdigest()
    )
