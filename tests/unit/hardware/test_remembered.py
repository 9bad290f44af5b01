from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.errors import ProbeFailed
from localllm.core.machine import Machine
from localllm.hardware import remembered
from localllm.hardware.bandwidth import Bandwidth
from localllm.hardware.remembered import FILE_NAME, SOURCE, detect_here
from tests.support import machines

DAY_S = 86_400.0


class Bench:
    """Measurements that are dictated, on a clock that is turned by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, name: str = "epyc_vm") -> None:
        self.results: list[float] = []
        self.now = 1_000_000.0
        self.folder = folder
        monkeypatch.setattr(remembered, "detect", lambda **_: machines.machine(name))

    def measure(self) -> Bandwidth:
        if not self.results:
            raise ProbeFailed("nothing to measure with")
        return Bandwidth(copy_gb_per_s=1.0, read_gb_per_s=self.results.pop(0), threads=2)

    def detect(self, **overrides: str) -> Machine:
        return detect_here(
            cache_dir=self.folder, overrides=overrides, measure=self.measure, now=lambda: self.now
        )

    def bandwidth(self) -> float | None:
        return self.detect().cpu.bandwidth_gb_per_s


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    return Bench(monkeypatch, tmp_path / "cache")


def test_it_is_measured_once_and_then_remembered(bench: Bench) -> None:
    bench.results = [20.0]
    assert bench.bandwidth() == 20.0
    assert bench.bandwidth() == 20.0  # a second measurement would have failed


def test_the_best_of_three_occasions_counts(bench: Bench) -> None:
    bench.results = [20.0, 35.0, 30.0, 99.0]
    seen = []
    for _ in range(5):
        seen.append(bench.bandwidth())
        bench.now += 3600
    assert seen == [20.0, 35.0, 35.0, 35.0, 35.0]
    assert bench.results == [99.0]


def test_after_a_month_it_starts_over(bench: Bench) -> None:
    bench.results = [50.0, 20.0]
    bench.bandwidth()
    bench.now += 31 * DAY_S
    assert bench.bandwidth() == 20.0


def test_another_machine_on_the_same_disk_is_measured_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.results = [50.0]
    bench.bandwidth()
    other = Bench(monkeypatch, bench.folder, "raspberry_pi_5")
    other.results = [12.0]
    assert other.bandwidth() == 12.0


def test_the_evidence_says_measured_and_an_override_still_wins(bench: Bench) -> None:
    bench.results = [20.0]
    used = [e for e in bench.detect().cpu.evidence if e.field == "bandwidth_gb_per_s" and e.used]
    assert [(e.source, e.value, e.note) for e in used] == [(SOURCE, "20.0", "best of 1")]
    assert bench.detect(**{"cpu.bandwidth_gb_per_s": "44"}).cpu.bandwidth_gb_per_s == 44


@pytest.mark.parametrize("content", [b"", b"{}", b"not json", b'{"machine": 1}'])
def test_a_damaged_memory_is_measured_anew(bench: Bench, content: bytes) -> None:
    bench.folder.mkdir()
    (bench.folder / FILE_NAME).write_bytes(content)
    bench.results = [20.0]
    assert bench.bandwidth() == 20.0


def test_nothing_to_measure_with_leaves_what_was_detected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = Bench(monkeypatch, tmp_path, "raspberry_pi_5")
    assert bench.bandwidth() == pytest.approx(17.1)
    assert not (tmp_path / FILE_NAME).exists()


def test_a_cache_that_cannot_be_written_costs_only_the_memory_of_it(bench: Bench) -> None:
    bench.folder.write_text("a file where the folder should be")
    bench.results = [20.0, 21.0]
    assert [bench.bandwidth(), bench.bandwidth()] == [20.0, 21.0]


def test_a_machine_short_of_memory_is_not_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        remembered, "detect", lambda **_: machines.machine("epyc_vm", **{"cpu.free_bytes": "500MiB"})
    )
    bench.results = [20.0]
    assert bench.bandwidth() is None
    assert bench.results == [20.0]
