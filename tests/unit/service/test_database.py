"""What happens to the data when the disk misbehaves."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from localllm.service import database as database_module
from localllm.service.database import Database
from localllm.service.notices import Notices
from tests.support.until import until

SCHEMA = "CREATE TABLE IF NOT EXISTS words (word TEXT NOT NULL UNIQUE);"


def add(word: str) -> database_module.Work[None]:
    def work(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO words VALUES (?)", (word,))

    return work


def words(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT word FROM words ORDER BY word")]


def put_aside(folder: Path) -> Path:
    (found,) = [p for p in folder.iterdir() if ".corrupt-" in p.name and p.suffix != ".tmp"]
    return found


async def opened(path: Path, notices: Notices | None = None, *, check: bool = False) -> Database:
    database = Database(path, SCHEMA, notices or Notices())
    await database.open(check=check)
    return database


async def test_what_was_written_is_there_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "x" / "test.db"
    database = await opened(path)
    await database.run(add("one"))
    database.submit(add("two"))
    await database.close()

    again = await opened(path, check=True)
    assert await again.run(words) == ["one", "two"]
    await again.close()
    assert path.stat().st_mode & 0o077 == 0


async def test_a_failed_transaction_leaves_nothing_behind(tmp_path: Path) -> None:
    database = await opened(tmp_path / "test.db")

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO words VALUES ('half')")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await database.run(half)
    await database.run(add("one"))
    with pytest.raises(sqlite3.IntegrityError):
        await database.run(add("one"))
    assert await database.run(words) == ["one"]
    await database.close()


@pytest.mark.parametrize("damage", ["garbage", "page"])
async def test_a_damaged_file_is_put_aside_whole(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "test.db"
    database = await opened(path)
    for number in range(2000):
        database.submit(add(f"word {number}"))
    await database.close()
    content = bytearray(path.read_bytes())
    if damage == "garbage":
        content[:100] = b"x" * 100
    else:
        content[8192:12288] = b"\xff" * 4096
    path.write_bytes(content)
    notices = Notices()

    again = await opened(path, notices, check=True)
    assert await again.run(words) == []
    await until(lambda: bool(notices.all()))
    assert notices.all()[0].code == "storage_corrupt"
    await again.close()
    aside = put_aside(tmp_path)
    assert aside.read_bytes() == bytes(content)


async def test_a_full_disk_moves_everything_to_memory_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices = Notices()
    database = await opened(tmp_path / "test.db", notices)
    await database.run(add("before"))

    def full(connection: sqlite3.Connection) -> None:
        if not database._in_memory:
            raise sqlite3.OperationalError("database or disk is full")
        add("during")(connection)

    await database.run(full)
    assert await database.run(words) == ["before", "during"]
    await until(lambda: any(n.code == "storage_degraded" for n in notices.all()))

    database._try_disk_at = 0.0
    await database.run(add("after"))
    await until(lambda: not notices.all())
    await database.close()
    again = await opened(tmp_path / "test.db")
    assert await again.run(words) == ["after", "before", "during"]
    await again.close()


async def test_a_database_locked_by_another_program_does_not_stop_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_MS", 50)
    path = tmp_path / "test.db"
    notices = Notices()
    database = await opened(path, notices)
    await database.run(add("before"))
    stranger = sqlite3.connect(path)
    stranger.execute("BEGIN EXCLUSIVE")

    await database.run(add("meanwhile"))
    await until(lambda: bool(notices.all()))
    stranger.rollback()
    stranger.close()
    await database.close()

    again = await opened(path)
    assert await again.run(words) == ["before", "meanwhile"]
    await again.close()


async def test_a_folder_that_cannot_be_made_means_memory_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    notices = Notices()
    database = await opened(tmp_path / "file" / "test.db", notices)
    await database.run(add("one"))
    assert await database.run(words) == ["one"]
    await until(lambda: bool(notices.all()))
    await database.close()
