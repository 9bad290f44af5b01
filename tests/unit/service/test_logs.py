from __future__ import annotations

import json
import logging
from pathlib import Path

from localllm.service.logs import LimitRepeats, logging_to, tail

log = logging.getLogger("localllm.test")


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_json_with_the_named_fields_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "log" / "service.log"
    with logging_to(path, "info"):
        log.info("request", extra={"request_id": "r1", "missing": None})
        log.debug("too fine")
        try:
            raise ValueError("boom")
        except ValueError:
            log.exception("it failed")
    first, second = lines(path)
    assert (first["level"], first["message"], first["request_id"]) == ("info", "request", "r1")
    assert set(first) == {"time", "level", "logger", "message", "request_id"}
    assert "boom" in str(second["exception"])
    assert path.stat().st_mode & 0o077 == 0
    assert not logging.getLogger().handlers or all(
        type(h).__name__ != "_Queued" for h in logging.getLogger().handlers
    )


def test_a_message_that_repeats_is_counted_instead_of_written() -> None:
    limit = LimitRepeats()

    def emit(at: float) -> logging.LogRecord | None:
        record = logging.LogRecord("x", logging.WARNING, __file__, 1, "again", (), None)
        record.created = at
        return record if limit.filter(record) else None

    written = [r for r in (emit(n * 0.01) for n in range(100)) if r is not None]
    assert len(written) == 20
    later = emit(60.0)
    assert later is not None and later.__dict__["dropped_before"] == 80


def test_the_tail_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    assert tail(path, 5) == ""
    path.write_text("".join(f"line {n}\n" for n in range(1000)))
    assert tail(path, 2) == "line 998\nline 999\n"
    assert tail(path, 5000, max_bytes=20).endswith("line 999\n")
