"""The audit log holds together, and says so when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from localllm.core.errors import StoreCorrupt
from localllm.service.gateway.audit import AuditEntry, AuditLog

ENTRY = AuditEntry(
    at=1.0,
    request_id="r0",
    key="ci",
    client="127.0.0.1",
    endpoint="/v1/chat/completions",
    model="m",
    status=200,
)


def written(folder: Path, count: int, **options: int) -> AuditLog:
    log = AuditLog(folder, **options)
    for number in range(count):
        log.append(replace(ENTRY, request_id=f"r{number}"))
    return log


def test_a_log_that_nobody_touched_holds_also_over_a_restart_and_rotation(tmp_path: Path) -> None:
    written(tmp_path, 5, rotate_bytes=600)
    log = written(tmp_path, 5, rotate_bytes=600)
    assert len(list(tmp_path.glob("audit-*.jsonl"))) >= 2
    assert log.verify() == (10, None)
    assert all(f.stat().st_mode & 0o077 == 0 for f in tmp_path.glob("*.jsonl"))


def test_a_changed_line_is_found(tmp_path: Path) -> None:
    log = written(tmp_path, 4)
    log.path.write_text(log.path.read_text().replace('"request_id":"r2"', '"request_id":"rX"'))
    good, fault = log.verify()
    assert good == 2
    assert fault is not None
    assert (fault.number, fault.reason) == (3, "it was changed")


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_line_that_was_taken_out_is_missed(tmp_path: Path, gone: int) -> None:
    log = written(tmp_path, 4)
    lines = log.path.read_text().splitlines(keepends=True)
    log.path.write_text("".join(lines[:gone] + lines[gone + 1 :]))
    good, fault = log.verify()
    assert good == gone
    assert fault is not None


def test_garbage_is_named_and_nothing_is_bound_to_it(tmp_path: Path) -> None:
    log = written(tmp_path, 1)
    with log.path.open("a") as file:
        file.write("half a li")
    good, fault = log.verify()
    assert (good, fault is not None) == (1, True)
    with pytest.raises(StoreCorrupt):
        AuditLog(tmp_path).append(ENTRY)
