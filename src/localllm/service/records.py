"""The record of every request that ended: figures and outcome, never what was said."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence

import msgspec

from localllm.core.control import RequestRecord
from localllm.core.errors import NotFound
from localllm.service.database import Database
from localllm.service.schema import RECORD_COLUMNS

_INSERT = (
    f"INSERT INTO requests ({', '.join(RECORD_COLUMNS)}) VALUES ({', '.join('?' * len(RECORD_COLUMNS))})"
)
_SELECT = f"SELECT {', '.join(RECORD_COLUMNS)} FROM requests"


class Records:
    """Kept for ``keep_days``. ``revision`` grows with each new record, so that a list knows it is old."""

    def __init__(
        self, database: Database, *, keep_days: int = 30, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.revision = 0
        self._database = database
        self._keep_days = keep_days
        self._on_change = on_change

    def finished(self, record: RequestRecord, gaps_ms: Sequence[float]) -> None:
        """Observe the pipeline: write the record behind the request's back."""
        self.add(record)

    def add(self, record: RequestRecord) -> None:
        row = msgspec.structs.astuple(record)
        self._database.submit(lambda connection: _insert(connection, row))
        self.revision += 1
        self._on_change()

    async def latest(self, *, limit: int = 100, before: float | None = None) -> tuple[RequestRecord, ...]:
        """The newest records, newest first; ``before`` (Unix seconds) pages back."""

        def select(connection: sqlite3.Connection) -> tuple[RequestRecord, ...]:
            rows = connection.execute(
                f"{_SELECT} WHERE created_at < ? ORDER BY created_at DESC, number DESC LIMIT ?",
                (before if before is not None else 1e18, limit),
            )
            return tuple(_record(row) for row in rows)

        return await self._database.run(select)

    async def get(self, record_id: str) -> RequestRecord:
        """Raises NotFound."""

        def select(connection: sqlite3.Connection) -> RequestRecord | None:
            row = connection.execute(
                f"{_SELECT} WHERE id = ? ORDER BY number DESC LIMIT 1", (record_id,)
            ).fetchone()
            return _record(row) if row else None

        found = await self._database.run(select)
        if found is None:
            raise NotFound(f"There is no request {record_id!r}.", hint="See the latest: localllm logs")
        return found

    def forget_old(self) -> None:
        """Delete what is older than ``keep_days``."""
        oldest = time.time() - self._keep_days * 86_400
        self._database.submit(lambda connection: _delete_before(connection, oldest))


def _insert(connection: sqlite3.Connection, row: tuple[object, ...]) -> None:
    connection.execute(_INSERT, row)


def _delete_before(connection: sqlite3.Connection, oldest: float) -> None:
    connection.execute("DELETE FROM requests WHERE created_at < ?", (oldest,))


def _record(row: tuple[object, ...]) -> RequestRecord:
    fields = dict(zip(RECORD_COLUMNS, row, strict=True))
    return msgspec.convert(fields, RequestRecord, strict=False)
