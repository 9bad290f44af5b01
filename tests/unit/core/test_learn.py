"""Plans beside engine logs, and what the next plan takes from it."""

from __future__ import annotations

import pytest

from localllm.core.engine_log import LoggedBuffer
from localllm.core.learn import Corrections, Ground, Observation, corrections_from, observe
from localllm.core.memory import DeviceEstimate, MemoryEstimate
from localllm.core.plan import Wish, plan_load
from tests.support.known_facts import facts_of
from tests.support.plain_machine import machine

ESTIMATE = MemoryEstimate(
    (
        DeviceEstimate(device_id="cpu", weights=300, compute=10, output=4),
        DeviceEstimate(device_id="gpu0", weights=5000, kv=1000, compute=100),
        DeviceEstimate(device_id="gpu1", weights=5000, kv=1000, compute=100),
    )
)


def seen(part: str, ratio: float, *, at: float = 0, build: str = "b1", device: str = "gpu0") -> Observation:
    return Observation(
        ground=Ground(device, "cuda", build),
        part=part,  # type: ignore[arg-type]
        planned_bytes=1000,
        measured_bytes=round(1000 * ratio),
        at=at,
    )


def test_a_log_is_laid_beside_its_plan() -> None:
    logged = [
        LoggedBuffer("weights", "CPU_Mapped", 300),
        LoggedBuffer("weights", "CPU_REPACK", 77),
        LoggedBuffer("weights", "CUDA0", 5000),
        LoggedBuffer("kv", "CUDA0", 900),
        LoggedBuffer("recurrent", "CUDA0", 100),
        LoggedBuffer("compute", "CUDA0", 110),
        LoggedBuffer("compute", "CUDA1", 90),
        LoggedBuffer("compute", "CUDA_Host", 12),
        LoggedBuffer("output", "CUDA_Host", 4),
        LoggedBuffer("kv", "CUDA7", 1),
    ]
    found = observe(ESTIMATE, logged, machine(64, 24, 24).gpus, build="b9525", at=1.0)
    table = {(o.ground.device_id, o.part): (o.planned_bytes, o.measured_bytes) for o in found}
    assert table == {
        ("cpu", "weights"): (300, 300),
        ("gpu0", "weights"): (5000, 5000),
        ("gpu0", "kv"): (1000, 1000),
        ("gpu0", "compute"): (100, 110),
        ("gpu1", "compute"): (100, 90),
        ("cpu", "compute"): (10, 12),
        ("cpu", "output"): (4, 4),
    }
    assert {o.ground.backend for o in found} == {"cpu", "cuda"}


def test_an_error_in_percent() -> None:
    assert seen("kv", 0.8).error_percent == pytest.approx(25)
    assert seen("kv", 0).error_percent is None


def test_the_median_corrects_the_next_plan() -> None:
    observations = [seen("compute", ratio, at=i) for i, ratio in enumerate((1.1, 1.2, 5.0))]
    corrections = corrections_from(observations, {"gpu0": "b1"})
    corrected = corrections.applied(ESTIMATE)
    assert corrected.on("gpu0").compute == 120
    assert corrected.on("gpu1").compute == 100
    assert corrected.on("gpu0").kv == 1000


def test_less_is_planned_only_when_several_loads_agree() -> None:
    once = [seen("compute", 0.8, at=0)]
    assert corrections_from(once, {"gpu0": "b1"}) == Corrections()
    thrice = [seen("compute", 0.8, at=i) for i in range(3)]
    assert corrections_from(thrice, {"gpu0": "b1"}).factors == {("gpu0", "compute"): 0.8}


def test_another_build_teaches_nothing() -> None:
    assert corrections_from([seen("compute", 1.5, build="old")], {"gpu0": "b1"}) == Corrections()


def test_noise_is_left_alone_and_nonsense_bounded() -> None:
    assert corrections_from([seen("kv", 1.004)], {"gpu0": "b1"}) == Corrections()
    assert corrections_from([seen("kv", 90)], {"gpu0": "b1"}).factors == {("gpu0", "kv"): 2.0}


def test_only_the_newest_count() -> None:
    old = [seen("kv", 1.5, at=i) for i in range(30)]
    new = [seen("kv", 1.1, at=100 + i) for i in range(20)]
    assert corrections_from(new + old, {"gpu0": "b1"}).factors[("gpu0", "kv")] == pytest.approx(1.1)


def test_nothing_learned_changes_nothing() -> None:
    assert Corrections().applied(ESTIMATE) is ESTIMATE


def test_the_next_plan_is_corrected() -> None:
    facts, where = facts_of("Llama-3.1-8B"), machine(32, 24)
    plain = plan_load(facts, where, Wish(), model_path="m")
    taught = plan_load(
        facts, where, Wish(), model_path="m", corrections=Corrections({("gpu0", "compute"): 1.5})
    )
    assert taught.memory.on("gpu0").compute == round(plain.memory.on("gpu0").compute * 1.5)
