from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import threading
import time
from pathlib import Path
from typing import Literal

import pytest

from localllm.core.errors import Conflict, DiskFull, GGUFError, HubError, NotFound
from localllm.hub.blobs import Blobs, Progress, open_regular, require_space, sha256_of

CONTENT = os.urandom(10_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "store" / "blobs")


def put(
    blobs: Blobs,
    sources: list[Path],
    mode: Literal["copy", "link"] = "copy",
    on_progress: Progress | None = None,
) -> tuple[str, ...]:
    with blobs.staged(sources, mode=mode, on_progress=on_progress) as staged:
        staged.adopt()
    return staged.digests


def names(blobs: Blobs) -> set[str]:
    return {path.name for path in blobs.root.iterdir()}


def test_a_copy_is_named_by_its_digest_and_read_only(blobs: Blobs, source: Path) -> None:
    steps: list[tuple[int, int]] = []
    assert put(blobs, [source], mode="copy", on_progress=lambda done, total: steps.append((done, total))) == (
        DIGEST,
    )
    blob = blobs.path(DIGEST)
    assert blob.read_bytes() == CONTENT
    assert stat.S_IMODE(blob.stat().st_mode) == 0o400
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert names(blobs) == {f"sha256-{DIGEST}"}


def test_an_existing_blob_is_left_untouched(blobs: Blobs, source: Path) -> None:
    put(blobs, [source], mode="copy")
    before = blobs.path(DIGEST).stat()
    put(blobs, [source], mode="copy")
    after = blobs.path(DIGEST).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert names(blobs) == {f"sha256-{DIGEST}"}


def test_a_link_shares_the_file(blobs: Blobs, source: Path) -> None:
    put(blobs, [source], mode="link")
    assert blobs.path(DIGEST).samefile(source)
    assert blobs.remove(blobs.path(DIGEST)) == 0
    assert source.read_bytes() == CONTENT


def test_a_link_across_disks_says_what_to_do(
    blobs: Blobs, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with pytest.raises(Conflict) as caught:
        put(blobs, [source], mode="link")
    assert "--reference" in (caught.value.hint or "")
    assert names(blobs) == set()


def test_parts_keep_the_names_llama_cpp_looks_for(blobs: Blobs, tmp_path: Path) -> None:
    parts = []
    for number in (1, 2):
        part = tmp_path / f"x-0000{number}-of-00002.gguf"
        part.write_bytes(CONTENT + bytes([number]))
        parts.append(part)
    digests = put(blobs, parts, mode="copy")
    assert [hashlib.sha256(part.read_bytes()).hexdigest() for part in parts] == list(digests)
    first, second = (blobs.set_path(digests, number) for number in (1, 2))
    assert first.parent == second.parent
    assert [first.name, second.name] == ["model-00001-of-00002.gguf", "model-00002-of-00002.gguf"]
    assert second.read_bytes() == parts[1].read_bytes()
    assert blobs.remove(first) == 2 * (len(CONTENT) + 1)
    assert names(blobs) == set()


def test_what_is_staged_and_not_adopted_goes(blobs: Blobs, source: Path) -> None:
    with blobs.staged([source], mode="copy") as staged:
        assert staged.digests == (DIGEST,)
    assert names(blobs) == set()


def test_a_cancelled_copy_leaves_nothing(blobs: Blobs, source: Path) -> None:
    def cancel(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        put(blobs, [source], mode="copy", on_progress=cancel)
    assert names(blobs) == set()


def test_a_disk_that_fills_midway_leaves_nothing(
    blobs: Blobs, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull):
        put(blobs, [source], mode="copy")
    assert names(blobs) == set()


def test_a_copy_that_cannot_fit_is_refused_before_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil._ntuple_diskusage(total=100 << 30, used=0, free=10 << 30)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    require_space(tmp_path, 8 << 30)
    with pytest.raises(DiskFull, match=r"10\.0 GiB free; the model needs 9\.0 GiB") as caught:
        require_space(tmp_path, 9 << 30)
    assert caught.value.details["reserve_bytes"] == 2 << 30


def test_old_leftovers_are_swept_and_fresh_ones_kept(blobs: Blobs, source: Path) -> None:
    blobs.root.mkdir(parents=True)
    stale, fresh = blobs.root / ".partial-aa", blobs.root / ".partial-bb"
    for path in (stale, fresh):
        path.write_bytes(b"half")
    two_days_ago = time.time() - 2 * 86400
    os.utime(stale, (two_days_ago, two_days_ago))
    put(blobs, [source], mode="copy")
    assert names(blobs) == {fresh.name, f"sha256-{DIGEST}"}


@pytest.mark.parametrize("digest", ["", "abc", "../../etc/passwd", "A" * 64, "a" * 63 + "/", "a" * 65])
def test_only_a_digest_becomes_a_path(blobs: Blobs, digest: str) -> None:
    with pytest.raises(HubError):
        blobs.path(digest)


def test_nothing_outside_is_removed(blobs: Blobs, source: Path) -> None:
    with pytest.raises(HubError):
        blobs.remove(source)
    assert source.exists()


def test_a_fifo_does_not_hang_and_a_folder_is_no_file(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe.gguf"
    os.mkfifo(fifo)
    raised: list[BaseException] = []

    def open_it() -> None:
        try:
            with open_regular(fifo):
                pass
        except GGUFError as error:
            raised.append(error)

    thread = threading.Thread(target=open_it, daemon=True)
    thread.start()
    thread.join(timeout=5)
    assert not thread.is_alive()
    assert "not a regular file" in str(raised[0])
    with pytest.raises(GGUFError), open_regular(tmp_path):
        pass
    with pytest.raises(NotFound), open_regular(tmp_path / "absent"):
        pass


def test_sha256_of(source: Path) -> None:
    assert sha256_of(source) == DIGEST


def test_a_finished_file_moves_to_its_place_once(blobs: Blobs, source: Path, tmp_path: Path) -> None:
    target = blobs.path(DIGEST)
    blobs.adopt_file(source, target)
    assert not source.exists()
    blobs.adopt_file(target, target)
    assert target.read_bytes() == CONTENT, "a file that is in its place already stays"
    again = tmp_path / "again"
    again.write_bytes(CONTENT)
    blobs.adopt_file(again, target)
    assert not again.exists()
    with pytest.raises(HubError):
        blobs.adopt_file(again, blobs.path("0" * 64))
