"""SQLite for chats and request records: one thread, one connection, and inference goes on when the disk does not.

Every transaction runs on the same thread, so nothing here is ever contended by ourselves. When the file cannot be
written (full, read-only, locked by another program, damaged) its content moves to memory, a notice says so, and each
minute a write tries to bring everything back. A database left by a crash is checked first; a damaged one is put aside
whole, never repaired in place and never parted from its write-ahead log.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from localllm.service.notices import Notices

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

BUSY_TIMEOUT_MS = 2000
_TRY_DISK_AGAIN_S = 60.0
_NOTICE = "storage_degraded"
# mistakes of ours, not troubles of the disk
_BUGS = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.NotSupportedError)


class Database:
    """``path`` is created with ``schema`` when it is not there; ``schema`` must be safe to run again."""

    def __init__(self, path: Path, schema: str, notices: Notices) -> None:
        self.path = path
        self._schema = schema
        self._notices = notices
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="database")
        self._connection: sqlite3.Connection | None = None
        self._in_memory = False
        self._try_disk_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(self, *, check: bool) -> None:
        """Open the file; ``check`` its integrity first, when the last service did not stop cleanly."""
        self._loop = asyncio.get_running_loop()
        await self._loop.run_in_executor(self._thread, self._open, check)

    async def close(self) -> None:
        """Finish what was submitted, fold the log into the file, and let go of it."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def run(self, work: Work[T]) -> T:
        """Run ``work`` in one transaction and return what it returns."""
        return await asyncio.wrap_future(self._thread.submit(self._transact, work))

    def submit(self, work: Work[None]) -> None:
        """Run ``work`` some time soon; a failure is logged."""
        self._thread.submit(self._transact, work).add_done_callback(_log_failure)

    # ------------------------------------------------------------ on the database's thread

    def _open(self, check: bool) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = self._connect(check=check)
        except (sqlite3.DatabaseError, OSError) as error:
            self._degrade(error)
            return
        self._connection = connection

    def _connect(self, *, check: bool) -> sqlite3.Connection:
        try:
            return self._connect_once(check=check)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._put_aside(error)
            return self._connect_once(check=False)

    def _connect_once(self, *, check: bool) -> sqlite3.Connection:
        if not self.path.exists():
            self.path.touch(mode=0o600)
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA foreign_keys = ON")
            if check and (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise _Damaged(found)
            connection.executescript(self._schema)
        except BaseException:
            connection.close()
            raise
        return connection

    def _put_aside(self, error: sqlite3.DatabaseError) -> None:
        """Rename the damaged file with its log and index, for whoever wants to rescue something from them."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for suffix in ("", "-wal", "-shm"):
            part = self.path.with_name(self.path.name + suffix)
            if part.exists():
                part.replace(part.with_name(f"{self.path.name}.corrupt-{stamp}{suffix}"))
        log.error("database damaged, put aside", extra={"path": str(self.path), "cause": str(error)})
        self._show(
            "storage_corrupt",
            f"The database was damaged and is kept as {self.path.name}.corrupt-{stamp}; a new one was begun.",
        )

    def _transact(self, work: Work[T]) -> T:
        if self._in_memory and time.monotonic() >= self._try_disk_at:
            self._return_to_disk()
        try:
            return self._once(work)
        except _BUGS:
            raise
        except sqlite3.DatabaseError as error:
            if self._in_memory:
                raise
            self._degrade(error)
            return self._once(work)

    def _once(self, work: Work[T]) -> T:
        connection = self._connection
        assert connection is not None, "the database is not open"
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _degrade(self, error: Exception) -> None:
        """Go on in memory, with everything that can still be read from the file."""
        log.error("database unusable, going on in memory", extra={"cause": str(error)})
        memory = sqlite3.connect(":memory:", isolation_level=None)
        if self._connection is not None:
            try:
                self._connection.backup(memory)
            except sqlite3.DatabaseError:
                log.exception("nothing could be read from the database")
            self._connection.close()
        memory.execute("PRAGMA foreign_keys = ON")
        memory.executescript(self._schema)
        self._connection, self._in_memory = memory, True
        self._try_disk_at = time.monotonic() + _TRY_DISK_AGAIN_S
        self._show(
            _NOTICE, f"Chats and records are kept in memory only: {self.path} cannot be written ({error})."
        )

    def _return_to_disk(self) -> None:
        memory = self._connection
        assert memory is not None
        self._try_disk_at = time.monotonic() + _TRY_DISK_AGAIN_S
        try:
            disk = self._connect(check=False)
        except (sqlite3.DatabaseError, OSError):
            return
        try:
            memory.backup(disk)
        except sqlite3.DatabaseError:
            disk.close()
            return
        memory.close()
        self._connection, self._in_memory = disk, False
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._notices.clear, _NOTICE)
        log.info("database is on disk again")

    def _close(self) -> None:
        if self._in_memory:
            self._return_to_disk()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _show(self, code: str, text: str) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._notices.show, code, "error", text)


class _Damaged(sqlite3.DatabaseError):
    """``quick_check`` found something."""


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, _Damaged) or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _log_failure(done: Future[None]) -> None:
    error = done.exception()
    if error is not None:
        log.error("a database write failed", exc_info=error)
