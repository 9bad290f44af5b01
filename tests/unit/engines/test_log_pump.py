from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from localllm.engines.log_pump import TAIL_BYTES, LogPump, RotatedFile


def pump(tmp_path: Path, data: bytes, file: RotatedFile | None = None) -> tuple[str, str, list[str]]:
    """What comes of these bytes: the log file, the tail, and the lines an observer saw."""
    read_end, write_end = os.pipe()
    lines: list[str] = []
    ended = threading.Event()
    path = tmp_path / "engine.log"
    pump = LogPump(read_end, file or RotatedFile(path), on_line=lines.append, on_end=ended.set)
    pump.start()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(data)
    assert ended.wait(20)
    return path.read_text() if path.exists() else "", pump.tail(), lines


def test_lines_arrive_whole_and_the_last_needs_no_end(tmp_path: Path) -> None:
    log, tail, lines = pump(tmp_path, b"one\ntwo\nthree")
    assert log == "one\ntwo\nthree\n"
    assert tail == "one\ntwo\nthree"
    assert lines == ["one", "two", "three"]


def test_bad_utf8_and_terminal_escapes_become_harmless(tmp_path: Path) -> None:
    log, tail, _ = pump(tmp_path, b"\xff\xfe bad \x1b[31mred\x07\n")
    assert log == "\ufffd\ufffd bad [31mred\n"
    assert "\x1b" not in tail


def test_a_line_of_ten_megabytes_is_cut_and_the_next_is_whole(tmp_path: Path) -> None:
    log, _, lines = pump(tmp_path, b"x" * (3 << 20) + b"\nnext\n")
    assert len(log) < 20_000
    assert "more bytes" in log
    assert log.endswith("next\n")
    assert lines[-1] == "next"


def test_repeated_lines_are_summed_up_but_all_are_observed(tmp_path: Path) -> None:
    data = b"".join(b"0.%d slot busy\n" % i for i in range(500)) + b"done\n"
    log, _, lines = pump(tmp_path, data)
    assert len(log.splitlines()) == 22
    assert "480 more lines like this one" in log
    assert len(lines) == 501


def test_a_flood_is_dropped_with_a_count_and_the_tail_stays_true(tmp_path: Path) -> None:
    data = b"".join(b"%06d %s\n" % (i, b"y" * 120) for i in range(100_000)) + b"last words\n"
    log, tail, _ = pump(tmp_path, data)
    assert len(log) < 6 << 20
    assert "bytes were logged too fast and dropped" in log
    assert tail.endswith("last words")
    assert len(tail) <= TAIL_BYTES


def test_files_rotate_and_only_so_many_are_kept(tmp_path: Path) -> None:
    file = RotatedFile(tmp_path / "engine.log", max_bytes=100, files=3)
    for i in range(40):
        file.write(f"line {i:03d} of forty\n")
    file.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["engine.log", "engine.log.1", "engine.log.2"]
    assert all(path.stat().st_size <= 120 for path in tmp_path.iterdir())
    assert "line 039" in (tmp_path / "engine.log").read_text()
    assert (tmp_path / "engine.log").stat().st_mode & 0o777 == 0o600


def test_a_disk_that_cannot_be_written_costs_only_the_log(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    _, tail, lines = pump(tmp_path, b"one\ntwo\n", RotatedFile(blocked / "engine.log"))
    assert tail == "one\ntwo"
    assert lines == ["one", "two"]


@pytest.mark.parametrize("chunk", [b"", b"\n"])
def test_nothing_is_nothing(tmp_path: Path, chunk: bytes) -> None:
    log, _, lines = pump(tmp_path, chunk)
    assert log == chunk.decode()
    assert lines == [""] * chunk.count(b"\n")
