"""Tuned settings: found again, replaced, and a sane number of threads where nothing was tuned."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from localllm.engines.tuning import Tuned, TuningFile, quiet_threads

BASE = Tuned(
    model_key="sha256:aa",
    model="tiny",
    device="CPU",
    threads=3,
    batch_threads=4,
    ubatch=256,
    decode_tokens_per_second=10.0,
    prefill_tokens_per_second=100.0,
    build="0.3.36",
    at=1000.0,
)


def test_the_exact_model_comes_first_then_any_on_the_same_device(tmp_path: Path) -> None:
    file = TuningFile(tmp_path / "deep" / "tuning.json")
    assert file.find("sha256:aa", "CPU") is None
    file.keep(BASE)
    file.keep(replace(BASE, model_key="sha256:bb", threads=2, at=2000.0))
    file.keep(replace(BASE, device="GPU", threads=9))
    assert file.find("sha256:aa", "CPU") == BASE
    other = file.find("sha256:cc", "CPU")
    assert other is not None
    assert other.threads == 2  # the newest on this device
    assert file.find("sha256:aa", "another") is None


def test_tuning_again_replaces_and_damage_counts_as_nothing(tmp_path: Path) -> None:
    file = TuningFile(tmp_path / "tuning.json")
    file.keep(BASE)
    file.keep(replace(BASE, threads=1, at=3000.0))
    assert [t.threads for t in file.read()] == [1]
    file.path.write_bytes(b"\xff{")
    assert file.read() == ()
    file.keep(BASE)
    assert file.read() == (BASE,)


@pytest.mark.parametrize(
    ("processors", "load", "threads"),
    [(8, None, None), (8, 0.2, None), (8, 2.6, 5), (2, 1.0, 1), (2, 6.4, 1), (1, 0.9, 1)],
)
def test_busy_processors_are_left_to_those_who_use_them(
    processors: int, load: float | None, threads: int | None
) -> None:
    assert quiet_threads(processors, load) == threads
