from __future__ import annotations

import pytest

from localllm.core.errors import HardwareError
from localllm.core.units import GIB
from localllm.hardware.overrides import parse_overrides
from tests.support import machines
from tests.support.machines import device


def test_an_override_wins_over_every_source_and_says_so() -> None:
    reading = machines.machine("rtx4090_desktop", **{"cuda0.free_bytes": "20GiB", "cpu.cores": "6"})
    gpu = device(reading, "cuda0")
    assert gpu.free_bytes == 20 * GIB
    used = [entry for entry in gpu.evidence if entry.field == "free_bytes" and entry.used]
    assert [(entry.source, entry.value) for entry in used] == [("override", str(20 * GIB))]
    assert reading.cpu.cores == 6
    assert reading.problems == ()


def test_other_kinds_of_value() -> None:
    overrides = {"cuda0.bandwidth_gb_per_s": "900.5", "cuda0.name": "My card", "cuda0.margin_bytes": "1GiB"}
    gpu = device(machines.machine("rtx4090_desktop", **overrides), "cuda0")
    assert (gpu.bandwidth_gb_per_s, gpu.name, gpu.margin_bytes) == (900.5, "My card", GIB)
    unknown = device(machines.machine("rtx4090_desktop", **{"cuda0.bandwidth_gb_per_s": "unknown"}), "cuda0")
    assert unknown.bandwidth_gb_per_s is None


def test_a_star_means_every_device() -> None:
    reading = machines.machine("two_rtx3090", **{"*.margin_bytes": "1GiB"})
    assert [found.margin_bytes for found in reading.devices] == [GIB, GIB, GIB]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("cuda0.free_byte", "1GiB", "cuda0.free_bytes?"),
        ("cuda7.free_bytes", "1GiB", "names nothing here"),
        ("cuda0.free_bytes", "lots", "not a size"),
        ("cuda0.cores", "-4", "out of range"),
        ("cuda0.bandwidth_gb_per_s", "nan", "out of range"),
        ("cuda0.margin_bytes", "unknown", "cannot be unknown"),
    ],
)
def test_what_cannot_be_applied_is_a_problem_and_changes_nothing(key: str, value: str, words: str) -> None:
    plain = machines.machine("rtx4090_desktop")
    reading = machines.machine("rtx4090_desktop", **{key: value})
    assert any(words in problem for problem in reading.problems)
    assert reading.devices == plain.devices


def test_overrides_are_read_from_texts_and_the_last_one_counts() -> None:
    assert parse_overrides(("cuda0.free_bytes = 20GiB", "cpu.name=x=y", "cuda0.free_bytes=1GiB")) == {
        "cuda0.free_bytes": "1GiB",
        "cpu.name": "x=y",
    }


@pytest.mark.parametrize("text", ["", "cuda0.free_bytes", "=1", "cpu.name= "])
def test_what_is_no_override_is_refused(text: str) -> None:
    with pytest.raises(HardwareError, match=r"DEVICE\.FIELD=VALUE"):
        parse_overrides([text])
