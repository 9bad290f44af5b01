"""What loads took is kept, and only as much of it as is worth keeping."""

from __future__ import annotations

from pathlib import Path

from localllm.core.learn import MOST_OBSERVATIONS, Ground, Observation
from localllm.engines.residuals import MOST_GROUNDS, ResidualFile, newest


def seen(at: float, build: str = "b1") -> Observation:
    return Observation(
        ground=Ground("cpu", "cpu", build), part="kv", planned_bytes=100, measured_bytes=110, at=at
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = ResidualFile(tmp_path / "data" / "residuals.json")
    assert file.read() == ()
    file.write([seen(1.0), seen(2.0)])
    assert file.read() == (seen(1.0), seen(2.0))
    assert [path.name for path in file.path.parent.iterdir()] == ["residuals.json"]


def test_a_damaged_file_counts_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "residuals.json"
    for damage in (b"", b"[{", b'[{"ground": 3}]', b"\xff\xfe"):
        path.write_bytes(damage)
        assert ResidualFile(path).read() == ()


def test_only_the_newest_of_each_part_is_kept() -> None:
    kept = newest([seen(float(at)) for at in range(MOST_OBSERVATIONS + 5)])
    assert [each.at for each in kept] == [float(at) for at in range(5, MOST_OBSERVATIONS + 5)]


def test_the_build_that_was_seen_longest_ago_goes_first() -> None:
    kept = newest([seen(float(number), f"b{number}") for number in range(MOST_GROUNDS + 2)])
    builds = {each.ground.build for each in kept}
    assert len(builds) == MOST_GROUNDS and not {"b0", "b1"} & builds
