from __future__ import annotations

import threading
import time

from localllm.core.machine import Device, DeviceKind
from localllm.hardware.detect import detect, detect_with_answers
from localllm.hardware.found import Found, Scene
from tests.support import machines


def gpu(name: str, device_id: str = "vulkan0") -> Device:
    return Device(id=device_id, kind=DeviceKind.GPU, name=name, total_bytes=8, free_bytes=8, margin_bytes=0)


def test_this_machine_is_read_within_its_deadline() -> None:
    began = time.monotonic()
    reading = detect(deadline_s=3.0)
    assert time.monotonic() - began < 3.5
    assert reading.cpu.kind is DeviceKind.CPU
    assert (reading.cpu.total_bytes or 0) > 0
    assert (reading.cpu.free_bytes or 0) > 0
    assert not reading.simulated


def test_the_answers_of_a_reading_replay_to_the_same_machine() -> None:
    live = detect_with_answers()
    assert detect(raw=live.answers) == live.machine


def test_a_probe_that_hangs_costs_the_deadline_and_a_problem() -> None:
    release = threading.Event()

    def hang(scene: Scene) -> Found:
        release.wait(30)
        return Found(devices=(gpu("late"),))

    began = time.monotonic()
    reading = detect_with_answers(deadline_s=0.4, probes={"NVIDIA": hang}).machine
    waited = time.monotonic() - began
    release.set()
    assert waited < 1.5
    assert reading.gpus == ()
    assert reading.problems == ("NVIDIA: no answer before the deadline.",)


def test_a_probe_that_fails_costs_only_itself() -> None:
    def fail(scene: Scene) -> Found:
        raise ZeroDivisionError("nonsense")

    def work(scene: Scene) -> Found:
        return Found(devices=(gpu("card"),), problems=("B: a remark.",))

    reading = detect_with_answers(probes={"A": fail, "B": work}).machine
    assert [found.name for found in reading.gpus] == ["card"]
    assert reading.problems == ("A: the probe failed (ZeroDivisionError: nonsense).", "B: a remark.")


def test_devices_of_two_vendors_on_one_backend_get_ids_of_their_own() -> None:
    probes = {
        "Intel": lambda scene: Found(devices=(gpu("Arc"),)),
        "AMD": lambda scene: Found(devices=(gpu("Radeon"), gpu("card", "rocm0"))),
    }
    reading = detect_with_answers(probes=probes).machine
    assert [(found.id, found.name) for found in reading.gpus] == [
        ("vulkan0", "Arc"),
        ("vulkan1", "Radeon"),
        ("rocm0", "card"),
    ]


def test_probes_see_the_hosts_memory_as_its_cgroup_limits_it() -> None:
    seen: list[int | None] = []

    def look(scene: Scene) -> Found:
        seen.append(scene.host.available_bytes)
        return Found()

    raw = machines.answers("container_cgroup_v2")
    reading = detect_with_answers(raw=raw, probes={"X": look}).machine
    assert seen == [reading.cpu.free_bytes]


def test_every_detection_is_a_new_reading() -> None:
    raw = machines.answers("epyc_vm")
    before = detect(raw=raw).cpu.free_bytes
    raw.texts["/proc/meminfo"] = raw.texts["/proc/meminfo"].replace("MemAvailable:   ", "MemAvailable: 1")
    assert detect(raw=raw).cpu.free_bytes != before
