from __future__ import annotations

from localllm.hardware.gauges.apple import AppleGauge
from tests.support import machines
from tests.unit.hardware.gauges.tree import gpu

REGISTRY = machines.answers("m3_max").outputs["ioreg"]


def test_memory_and_load_from_the_registry() -> None:
    sample = AppleGauge(gpu("Apple", unified=True), ask=lambda: REGISTRY).read()
    assert (sample.memory_used_bytes, sample.utilisation_percent) == (1073741824, 5)


def test_the_registry_is_not_asked_at_every_reading() -> None:
    asked = []

    def ask() -> str:
        asked.append(1)
        return REGISTRY

    gauge = AppleGauge(gpu("Apple", unified=True), ask=ask, interval_s=60)
    assert gauge.read() == gauge.read() == gauge.read()
    assert len(asked) == 1


def test_no_registry_is_unknown() -> None:
    sample = AppleGauge(gpu("Apple", unified=True), ask=lambda: None).read()
    assert (sample.memory_used_bytes, sample.utilisation_percent) == (None, None)
