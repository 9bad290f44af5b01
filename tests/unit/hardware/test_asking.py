from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localllm.core.errors import HardwareError
from localllm.hardware.asking import (
    LiveAsker,
    RawAnswers,
    ReplayAsker,
    load_answers,
    merge_answers,
    run_bounded,
    save_answers,
)

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


def record(**texts: str) -> RawAnswers:
    return RawAnswers(system="Linux", architecture="x86_64", hostname="h", texts=texts)


def test_what_the_live_asker_was_told_is_what_a_replay_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "name").write_text("value\0\n")
    (tmp_path / "link").symlink_to(tmp_path / "name")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    live = LiveAsker(deadline_s=10)
    asked = {
        "text": live.text(str(tmp_path / "name")),
        "names": live.names(str(tmp_path)),
        "target": live.target(str(tmp_path / "link")),
        "output": live.output("hello", (sys.executable, "-c", "print('hi')")),
        "environment": live.environment("CUDA_VISIBLE_DEVICES"),
    }
    assert asked["text"] == "value"
    assert asked["names"] == ("link", "name")
    assert asked["output"] == "hi\n"
    save_answers(live.answers, tmp_path / "record.json")
    replay = ReplayAsker(load_answers(tmp_path / "record.json"))
    assert (replay.system, replay.architecture, replay.hostname) == (
        live.system,
        live.architecture,
        live.hostname,
    )
    assert asked == {
        "text": replay.text(str(tmp_path / "name")),
        "names": replay.names(str(tmp_path)),
        "target": replay.target(str(tmp_path / "link")),
        "output": replay.output("hello", ("never", "run")),
        "environment": replay.environment("CUDA_VISIBLE_DEVICES"),
    }


def test_absent_is_no_failure_but_forbidden_is(tmp_path: Path) -> None:
    live = LiveAsker(deadline_s=1)
    assert live.text(str(tmp_path / "missing")) is None
    assert live.failure(str(tmp_path / "missing")) is None
    assert live.text(str(tmp_path)) is None  # a folder cannot be read as a file
    assert live.failure(str(tmp_path)) == os.strerror(errno.EISDIR)
    assert live.names(str(tmp_path / "missing")) == ()
    assert live.target(str(tmp_path)) is None


def test_a_program_that_hangs_is_ended_at_the_deadline() -> None:
    live = LiveAsker(deadline_s=0.3)
    began = time.monotonic()
    assert live.output("nvml", SLEEP) is None
    assert time.monotonic() - began < 3
    assert "no answer within" in (live.failure("nvml") or "")
    assert live.output("second", SLEEP) is None  # the time is spent: it is not even started
    assert time.monotonic() - began < 3


def test_a_program_that_fails_leaves_its_last_words() -> None:
    live = LiveAsker(deadline_s=10)
    program = "import sys; print('first', file=sys.stderr); sys.exit('second')"
    assert live.output("nvml", (sys.executable, "-c", program)) is None
    assert live.failure("nvml") == "exit code 1: second"
    assert live.output("absent", ("no-such-program-here",)) is None
    assert live.failure("absent") is None


def test_run_bounded_leaves_no_child_behind() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run_bounded(SLEEP, timeout_s=0.2)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_merging_keeps_every_parts_answers() -> None:
    merged = merge_answers([record(a="1"), record(b="2")])
    assert merged.texts == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"not json", "not a record"), (b"{}", "not a record"), (None, "cannot be read")],
)
def test_a_bad_record_is_refused_by_name(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "record.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HardwareError, match=words):
        load_answers(path)


def test_a_record_of_a_later_format_is_refused(tmp_path: Path) -> None:
    answers = record()
    answers.format = 2
    save_answers(answers, tmp_path / "record.json")
    with pytest.raises(HardwareError, match="format 2"):
        load_answers(tmp_path / "record.json")


def test_saving_where_nothing_can_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match="cannot be written"):
        save_answers(record(), tmp_path / "missing" / "record.json")
