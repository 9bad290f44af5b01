from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from localllm.core.control import RequestRecord
from localllm.core.errors import NotFound
from localllm.service.database import Database
from localllm.service.notices import Notices
from localllm.service.records import Records
from localllm.service.schema import schema
from localllm.settings.paths import Paths


@pytest.fixture
async def database(paths: Paths) -> AsyncIterator[Database]:
    database = Database(paths.database_file, schema(), Notices())
    await database.open(check=False)
    yield database
    await database.close()


def record(number: int, **fields: object) -> RequestRecord:
    return RequestRecord(
        id=f"r{number}",
        created_at=time.time() + number,
        endpoint="chat",
        model="m",
        status=200,
        **fields,  # type: ignore[arg-type]
    )


async def test_a_record_comes_back_as_it_went_in(database: Database) -> None:
    records = Records(database)
    full = record(1, stream=True, prompt_tokens=3, ttft_ms=1.5, finish_reason="stop", tier="default")
    records.finished(full, [])
    assert await records.get("r1") == full
    with pytest.raises(NotFound):
        await records.get("r2")


async def test_the_newest_come_first_and_pages_go_back(database: Database) -> None:
    changes: list[int] = []
    records = Records(database, on_change=lambda: changes.append(1))
    for number in range(5):
        records.add(record(number))
    page = await records.latest(limit=2)
    assert [r.id for r in page] == ["r4", "r3"]
    assert [r.id for r in await records.latest(limit=2, before=page[-1].created_at)] == ["r2", "r1"]
    assert records.revision == len(changes) == 5


async def test_old_records_are_forgotten(database: Database) -> None:
    records = Records(database, keep_days=1)
    records.add(record(-3 * 86_400))
    records.add(record(0))
    records.forget_old()
    assert [r.id for r in await records.latest()] == ["r0"]
