from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from localllm.core.errors import DiskFull, HubError
from localllm.hub.download.part import PartFile

SIZE = 100


def part(path: Path, *, size: int = SIZE, etag: str | None = '"v1"', sha256: str | None = None) -> PartFile:
    return PartFile(path, url="https://example.org/m", size=size, etag=etag, sha256=sha256)


def put(file: PartFile, start: int, data: bytes) -> None:
    file.write(start, data)
    file.mark(start, start + len(data))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "m.part"


def test_only_what_was_committed_is_there_after_a_kill(path: Path) -> None:
    file = part(path)
    put(file, 0, b"a" * 40)
    file.commit()
    put(file, 60, b"b" * 20)
    assert (file.written_bytes, file.unrecorded_bytes, file.prefix) == (60, 20, 40)
    again = part(path)  # as after kill -9: nobody closed the first
    assert (again.written_bytes, again.unrecorded_bytes) == (40, 0)
    assert again.pieces(SIZE) == [(40, 100)]
    file.close()
    again.close()


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"\0" * 50,
        b"{}",
        b"[1]",
        b'{"format":1,"url":"","size":100,"etag":"\\"v1\\"","sha256":null,"done":[[0,400]]}',
    ],
)
def test_a_state_that_makes_no_sense_is_no_progress(path: Path, state: bytes) -> None:
    file = part(path)
    put(file, 0, b"a" * 40)
    file.commit()
    file.close()
    path.with_suffix(".state").write_bytes(state)
    again = part(path)
    assert again.written_bytes == 0
    again.close()


def test_a_state_without_its_file_is_no_progress(path: Path) -> None:
    file = part(path)
    put(file, 0, b"a" * 40)
    file.commit()
    file.close()
    path.unlink()
    again = part(path)
    assert again.written_bytes == 0
    again.close()


@pytest.mark.parametrize(
    ("size", "etag", "sha256", "kept"),
    [
        (100, '"v1"', None, 40),
        (100, '"v2"', None, 0),
        (100, None, None, 0),
        (101, '"v1"', None, 0),
        (100, '"v1"', "ab", 0),
    ],
)
def test_progress_counts_for_the_same_file_only(
    path: Path, size: int, etag: str | None, sha256: str | None, kept: int
) -> None:
    file = part(path)
    put(file, 0, b"a" * 40)
    file.commit()
    file.close()
    again = part(path, size=size, etag=etag, sha256=sha256)
    assert again.written_bytes == kept
    again.close()


def test_the_digest_identifies_a_file_whatever_its_etag(path: Path) -> None:
    file = part(path, sha256="ab")
    put(file, 0, b"a" * 40)
    file.commit()
    file.close()
    again = part(path, sha256="ab", etag='"v2"')
    assert again.written_bytes == 40
    again.close()


def test_a_published_file_is_read_only_and_leaves_nothing(path: Path, tmp_path: Path) -> None:
    file = part(path)
    put(file, 0, b"a" * SIZE)
    os.truncate(path, 500)  # over-long: what is beyond the size is cut off
    target = tmp_path / "done"
    file.publish(target)
    assert target.read_bytes() == b"a" * SIZE
    assert target.stat().st_mode & 0o777 == 0o400
    assert list(path.parent.iterdir()) == []


def test_a_full_disk_is_said_and_the_part_stays(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = part(path)

    def full(descriptor: int, data: object, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFull) as caught:
        file.write(0, b"a")
    assert "goes on" in (caught.value.hint or "")
    file.close()
    assert path.exists()


def test_a_planted_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    path.parent.mkdir()
    path.symlink_to(victim)
    with pytest.raises(HubError):
        part(path)
    assert victim.read_bytes() == b"precious"


def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(HubError, match="cannot be written"):
        part(tmp_path / "file" / "m.part")


def test_closing_waits_for_a_thread_that_is_writing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor that is closed under a writer could be another file's by the time it writes."""
    file = part(path)
    entered, go_on, order = threading.Event(), threading.Event(), list[str]()
    real = os.pwrite

    def slow(descriptor: int, data: bytes, offset: int) -> int:
        entered.set()
        assert go_on.wait(10)
        order.append("written")
        return real(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", slow)
    writer = threading.Thread(target=file.write, args=(0, b"a" * 10))
    writer.start()
    assert entered.wait(10)

    def close() -> None:
        file.close()
        order.append("closed")

    closer = threading.Thread(target=close)
    closer.start()
    go_on.set()
    writer.join(10)
    closer.join(10)
    assert order == ["written", "closed"]
    with pytest.raises(HubError, match="closed"):
        file.write(0, b"late")


def test_progress_that_is_recorded_while_starting_over_does_not_come_back(path: Path) -> None:
    file = part(path)
    put(file, 0, b"a" * 40)
    file.commit()
    file.restart()
    assert (file.written_bytes, file.unrecorded_bytes, path.stat().st_size) == (0, 0, 0)
    file.close()
    again = part(path)
    assert again.written_bytes == 0
    again.close()


def test_a_system_without_positioned_writes_will_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pwrite")
    monkeypatch.delattr(os, "pread")
    file = part(path)
    put(file, 50, b"b" * 50)
    put(file, 0, b"a" * 50)
    assert file.read(40, 20) == b"a" * 10 + b"b" * 10
    file.close()
