from __future__ import annotations

import threading
import time

import pytest

from localllm.core.machine import Device, DeviceKind, DeviceSample, Machine
from localllm.hardware import sampler as module
from localllm.hardware.detect import detect
from localllm.hardware.gauges.base import Gauge
from localllm.hardware.sampler import Sampler
from localllm.hardware.simulate import simulate


class FakeGauge:
    """Answers at once, fails, or waits until it is let go."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False
        self.reads = 0
        self.closed = threading.Event()

    def read(self) -> DeviceSample:
        self.reads += 1
        self.gate.wait(10)
        if self.fails:
            raise OSError("gone")
        return DeviceSample(
            id=self.device.id,
            name=self.device.name,
            kind=self.device.kind,
            utilisation_percent=float(self.reads),
        )

    def close(self) -> None:
        self.closed.set()


GPUS = tuple(
    Device(
        id=f"cuda{n}",
        kind=DeviceKind.GPU,
        name=f"card {n}",
        total_bytes=8,
        free_bytes=8,
        margin_bytes=0,
        vendor="NVIDIA",
    )
    for n in range(2)
)
CPU = Device(id="cpu", kind=DeviceKind.CPU, name="CPU", total_bytes=8, free_bytes=8, margin_bytes=0)
MACHINE = Machine(hostname="h", system="Linux", devices=(CPU, *GPUS))


@pytest.fixture
def gauges(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeGauge]:
    made = {device.id: FakeGauge(device) for device in MACHINE.devices}

    def choose(device: Device, machine: Machine) -> Gauge:
        return made[device.id]

    monkeypatch.setattr(module, "_gauge", choose)
    return made


def loads(samples: tuple[DeviceSample, ...]) -> list[float | None]:
    return [sample.utilisation_percent for sample in samples]


def test_every_device_is_read_in_its_order(gauges: dict[str, FakeGauge]) -> None:
    with Sampler(MACHINE, patience_s=5) as sampler:
        assert [sample.id for sample in sampler.sample()] == ["cpu", "cuda0", "cuda1"]
        assert loads(sampler.sample()) == [2.0, 2.0, 2.0]
    assert all(gauge.closed.wait(5) for gauge in gauges.values())


def test_a_driver_that_hangs_costs_one_wait_and_comes_back(gauges: dict[str, FakeGauge]) -> None:
    stuck = gauges["cuda0"]
    stuck.gate.clear()
    with Sampler(MACHINE, patience_s=0.3) as sampler:
        assert loads(sampler.sample()) == [1.0, None, 1.0]
        began = time.monotonic()
        for _ in range(20):
            assert loads(sampler.sample())[1] is None
        assert time.monotonic() - began < 20 * 0.3 / 2  # asked once, not waited for again
        assert stuck.reads == 1
        stuck.gate.set()
        deadline = time.monotonic() + 5
        while loads(sampler.sample())[1] is None:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        assert stuck.reads >= 2  # the late answer was dropped, a fresh one asked for


def test_a_gauge_that_fails_reads_as_unknown(gauges: dict[str, FakeGauge]) -> None:
    for gauge in gauges.values():
        gauge.fails = True
    with Sampler(MACHINE, patience_s=5) as sampler:
        samples = sampler.sample()
        assert loads(samples) == [None, None, None]
        assert [sample.memory_total_bytes for sample in samples] == [8, 8, 8]
        gauges["cuda0"].fails = False
        assert loads(sampler.sample())[1] == 2.0


def test_a_simulated_machine_has_nothing_to_read() -> None:
    with Sampler(simulate("RTX 4090")) as sampler:
        samples = sampler.sample()
    assert [sample.id for sample in samples] == ["cpu", "cuda0"]
    assert loads(samples) == [None, None]


def test_a_card_without_a_library_reads_as_unknown() -> None:
    """An NVIDIA card on a machine without NVIDIA's driver: the gauge cannot start, nothing breaks."""
    card = Device(
        id="cuda0",
        kind=DeviceKind.GPU,
        name="card",
        vendor="NVIDIA",
        address="GPU-1",
        total_bytes=8,
        free_bytes=8,
        margin_bytes=0,
    )
    with Sampler(Machine(hostname="h", system="Linux", devices=(CPU, card)), patience_s=5) as sampler:
        assert sampler.sample()[1].memory_used_bytes is None


def test_this_machine_is_read_cheaply() -> None:
    """Twice a second within 0.3 % of a core is 1.5 ms a reading; CPU time, so that a busy machine does not matter."""
    with Sampler(detect()) as sampler:
        sampler.sample()
        began = time.thread_time()
        for _ in range(50):
            sample = sampler.sample()[0]
        assert (time.thread_time() - began) / 50 < 0.0015
    assert sample.memory_used_bytes is not None and sample.memory_total_bytes is not None
    assert 0 < sample.memory_used_bytes < sample.memory_total_bytes
