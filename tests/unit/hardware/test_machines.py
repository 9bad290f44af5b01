"""Whole machines, replayed: what each kind of machine must come out as."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localllm.core.machine import DeviceKind, Holder, Machine
from localllm.core.units import GIB, MIB
from localllm.hardware.asking import RawAnswers
from localllm.hardware.detect import detect
from tests.support import machines
from tests.support.machines import device


@pytest.mark.parametrize("name", machines.NAMES)
def test_every_reading_is_sound(name: str) -> None:
    """Whatever the answers: the CPU first, ids unique, no memory out of thin air, every choice with its evidence."""
    reading = machines.machine(name)
    assert reading.devices[0].kind is DeviceKind.CPU
    assert len({found.id for found in reading.devices}) == len(reading.devices)
    for found in reading.devices:
        if found.total_bytes is not None and found.free_bytes is not None:
            assert 0 <= found.free_bytes <= found.total_bytes
            assert found.usable_bytes <= found.free_bytes
        for field in ("total_bytes", "free_bytes", "margin_bytes", "bandwidth_gb_per_s"):
            value = getattr(found, field)
            used = [entry.value for entry in found.evidence if entry.field == field and entry.used]
            assert used == ([] if value is None else [str(value)])
    assert msgspec.json.decode(msgspec.json.encode(reading), type=Machine) == reading


def test_rtx_4090_desktop() -> None:
    reading = machines.machine("rtx4090_desktop")
    gpu = device(reading, "cuda0")
    assert (gpu.name, gpu.vendor, gpu.backend) == ("NVIDIA GeForce RTX 4090", "NVIDIA", "cuda")
    assert (gpu.total_bytes, gpu.free_bytes) == (24564 * MIB, 22872 * MIB)
    assert gpu.margin_bytes == 640 * MIB  # it draws the desktop
    assert gpu.bandwidth_gb_per_s == pytest.approx(1008, rel=0.001)
    assert gpu.compute_capability == "8.9"
    assert gpu.driver == "550.144.03"
    assert not gpu.unified
    assert gpu.holders[0] == Holder(pid=40112, name="ollama", bytes=800 * MIB)
    assert (reading.cpu.cores, reading.cpu.logical_cores, reading.cpu.performance_cores) == (16, 32, None)
    assert reading.cpu.free_bytes == 52311040 * 1024
    assert (reading.container, reading.memory_limit_bytes, reading.problems) == (None, None, ())


def test_laptop_gpu_gets_the_laptops_figures_and_the_cpu_its_two_kinds_of_core() -> None:
    reading = machines.machine("rtx4060_laptop")
    gpu = device(reading, "cuda0")
    assert gpu.bandwidth_gb_per_s == pytest.approx(256, rel=0.001)
    table = [entry for entry in gpu.evidence if entry.source == "device table"]
    assert table[0].note == "GeForce RTX 4060 Laptop"
    assert gpu.margin_bytes == 384 * MIB
    cpu = reading.cpu
    assert (cpu.cores, cpu.performance_cores, cpu.logical_cores) == (14, 6, 20)
    # The processor's own graphics are worth nothing here, and that is said rather than hidden.
    assert len(reading.gpus) == 1
    assert any(entry.field == "gpu" and "Intel a7a0" in entry.value for entry in cpu.evidence)


def test_two_rtx_3090_with_their_own_free_memory_and_holders() -> None:
    reading = machines.machine("two_rtx3090")
    first, second = reading.gpus
    assert (first.id, second.id) == ("cuda0", "cuda1")
    assert (first.free_bytes, second.free_bytes) == (24260 * MIB, 11020 * MIB)
    assert first.holders == ()
    assert second.holders == (Holder(pid=9001, name="python3", bytes=13200 * MIB),)
    assert first.address != second.address


def test_h100() -> None:
    gpu = device(machines.machine("h100"), "cuda0")
    assert gpu.total_bytes == 81559 * MIB
    assert gpu.bandwidth_gb_per_s == pytest.approx(3350, rel=0.005)
    assert "amx_int8" in machines.machine("h100").cpu.isa


def test_gb10_has_the_hosts_memory() -> None:
    reading = machines.machine("gb10")
    gpu = device(reading, "cuda0")
    assert gpu.unified
    assert gpu.total_bytes == reading.cpu.total_bytes == 127600748 * 1024
    assert gpu.free_bytes == reading.cpu.free_bytes == 118566368 * 1024
    assert gpu.bandwidth_gb_per_s == reading.cpu.bandwidth_gb_per_s == pytest.approx(273.1)
    assert reading.cpu.performance_cores == 10
    assert reading.problems == ()
    asked = {entry.source: entry for entry in gpu.evidence if entry.field == "total_bytes"}
    assert (asked["NVML"].value, asked["NVML"].note) == ("unknown", "Not Supported")


def test_jetson_without_nvml_is_found_by_its_device_tree() -> None:
    reading = machines.machine("jetson_agx_orin")
    gpu = device(reading, "cuda0")
    assert gpu.name == "NVIDIA Jetson AGX Orin Developer Kit"
    assert gpu.unified
    assert (gpu.compute_capability, gpu.driver) == ("8.7", "L4T 36.4.3")
    assert gpu.bandwidth_gb_per_s == pytest.approx(204.8)
    assert gpu.free_bytes == reading.cpu.free_bytes


def test_radeon_card_counts_its_own_memory_only() -> None:
    reading = machines.machine("rx7900xtx_desktop")
    (gpu,) = reading.gpus
    assert (gpu.id, gpu.name, gpu.backend) == ("rocm0", "AMD Radeon RX 7900 XTX", "rocm")
    assert gpu.total_bytes == 25753026560
    assert gpu.free_bytes == 25753026560 - 1543503872
    assert (gpu.compute_capability, gpu.cores) == ("gfx1100", 96)
    assert gpu.bandwidth_gb_per_s == 960
    assert gpu.holders == (Holder(pid=5120, name="ollama_llama_se", bytes=GIB),)
    # Two compute units in the processor draw a desktop; planning leaves them alone and says so.
    left_out = [entry for entry in reading.cpu.evidence if entry.field == "gpu"]
    assert [(entry.value, entry.used) for entry in left_out] == [("gfx1036", False)]


def test_strix_halo_counts_its_memory_once() -> None:
    reading = machines.machine("ryzen_ai_max")
    gpu = device(reading, "rocm0")
    assert gpu.unified
    assert gpu.total_bytes == 536870912 + 115964116992
    assert gpu.free_bytes == (536870912 - 161480704) + (115964116992 - 1100000000)
    assert gpu.compute_capability == "gfx1151"
    assert gpu.bandwidth_gb_per_s == 256
    assert gpu.holders == (Holder(pid=4021, name="firefox", bytes=128 * MIB),)


def test_an_apus_free_memory_is_bounded_by_the_hosts() -> None:
    raw = machines.answers("ryzen_ai_max")
    raw.texts["/proc/meminfo"] = "MemTotal: 131061760 kB\nMemAvailable: 10485760 kB"
    gpu = device(detect(raw=raw), "rocm0")
    assert gpu.free_bytes == (536870912 - 161480704) + 10485760 * 1024


def test_arc_a770_on_i915_knows_its_size_from_the_pci_window() -> None:
    gpu = device(machines.machine("arc_a770"), "vulkan0")
    assert gpu.name == "Intel Arc A770"
    assert gpu.total_bytes == 16 * GIB
    assert gpu.free_bytes == 16 * GIB - 400 * MIB
    assert gpu.holders == (Holder(pid=3100, name="gnome-shell", bytes=400 * MIB),)


def test_arc_b580_on_xe_tells_its_size_and_the_cpu_is_no_radeon() -> None:
    reading = machines.machine("arc_b580")
    assert device(reading, "vulkan0").total_bytes == 12 * GIB
    # "Ryzen 5 7600" contains the number of the RX 7600.
    assert reading.cpu.bandwidth_gb_per_s is None


def test_lunar_lake_shares_three_quarters_of_the_host() -> None:
    reading = machines.machine("lunar_lake")
    gpu = device(reading, "vulkan0")
    assert gpu.unified
    assert gpu.total_bytes == int(32330000 * 1024 * 0.75)
    assert (reading.cpu.cores, reading.cpu.performance_cores) == (8, 4)


def test_m3_max_plans_within_metals_limit() -> None:
    reading = machines.machine("m3_max")
    gpu = device(reading, "metal0")
    assert gpu.name == "Apple M3 Max (40-core GPU)"
    assert gpu.total_bytes == 48 * GIB
    pages = 1562000 + 790000 + 31000 + 12000
    assert reading.cpu.free_bytes == pages * 16384
    assert gpu.free_bytes == pages * 16384  # less than the limit leaves
    assert gpu.bandwidth_gb_per_s == reading.cpu.bandwidth_gb_per_s == 400
    assert (reading.cpu.cores, reading.cpu.performance_cores) == (16, 12)
    assert "i8mm" in reading.cpu.isa and "sme" not in reading.cpu.isa


def test_a_raised_wired_limit_counts_when_metal_does_not_answer() -> None:
    gpu = device(machines.machine("m3_max_wired_limit"), "metal0")
    assert gpu.total_bytes == 56 * GIB


def test_raspberry_pi_5() -> None:
    reading = machines.machine("raspberry_pi_5")
    assert reading.gpus == ()
    assert reading.cpu.name == "Raspberry Pi 5 Model B Rev 1.0"
    assert reading.cpu.cores == 4
    assert reading.cpu.bandwidth_gb_per_s == pytest.approx(17.1)
    assert reading.cpu.isa == ("neon", "fp16", "dotprod")


def test_wsl_finds_the_card_through_windows_library() -> None:
    reading = machines.machine("wsl2_rtx4070")
    assert reading.container == "wsl2"
    gpu = device(reading, "cuda0")
    assert gpu.free_bytes == 10890 * MIB
    assert gpu.holders == ()


def test_container_with_a_cgroup_v2_limit() -> None:
    reading = machines.machine("container_cgroup_v2")
    assert (reading.container, reading.memory_limit_bytes) == ("docker", 8 * GIB)
    # 8 GiB allowed, 3 used, of which 1.5 are page cache that can be dropped.
    assert reading.cpu.free_bytes == 6 * GIB + GIB // 2
    assert reading.cpu.cores == 3  # 3.5 CPUs of time
    assert reading.cpu.margin_bytes == 8 * GIB // 20


def test_container_with_a_cgroup_v1_limit_and_the_hosts_path() -> None:
    reading = machines.machine("cgroup_v1_container")
    assert reading.memory_limit_bytes == 4 * GIB
    assert reading.cpu.free_bytes == 2 * GIB + GIB // 2
    assert reading.cpu.cores == 2


def test_a_small_vm_without_a_gpu_or_a_limit() -> None:
    reading = machines.machine("epyc_vm")
    assert reading.gpus == ()
    assert reading.cpu.name == "AMD EPYC"
    assert (reading.cpu.cores, reading.memory_limit_bytes) == (2, None)
    assert "avx512_vnni" in reading.cpu.isa


def test_windows() -> None:
    reading = machines.machine("windows_rtx3080")
    assert reading.cpu.name == "AMD Ryzen 7 5800X 8-Core Processor"
    assert (reading.cpu.cores, reading.cpu.logical_cores) == (8, 16)
    assert reading.cpu.free_bytes == 20 * GIB
    assert device(reading, "cuda0").holders[0].bytes is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lost_gpu", "no answer within 2.8 s"),
        ("one_gpu_of_two_lost", "GPU 1 does not answer (GPU is lost)"),
        ("driver_mismatch", "NVML/RM version mismatch"),
        ("nvidia_without_driver", "driver is not loaded"),
        ("nonsense_answers", "32.0 TiB free of 24.0 GiB"),
    ],
)
def test_what_is_wrong_is_said_in_words(name: str, words: str) -> None:
    assert any(words in problem for problem in machines.machine(name).problems)


def test_a_lost_gpu_costs_only_itself() -> None:
    reading = machines.machine("one_gpu_of_two_lost")
    assert [gpu.id for gpu in reading.gpus] == ["cuda0"]
    assert reading.cpu.free_bytes is not None


def test_nonsense_is_unknown_and_nothing_is_planned_on_it() -> None:
    reading = machines.machine("nonsense_answers")
    gpu = device(reading, "cuda0")
    assert gpu.free_bytes is None and gpu.usable_bytes == 0
    assert gpu.bandwidth_gb_per_s == 1008  # from the table: the bus width was absurd
    assert gpu.holders == (Holder(pid=77, name="unknown", bytes=None),)
    assert reading.cpu.free_bytes is None
    assert reading.cpu.total_bytes == 65586892 * 1024


def test_no_answers_at_all_still_make_a_machine() -> None:
    reading = machines.machine("empty_answers")
    assert reading.devices[0].total_bytes is None
    assert reading.devices[0].usable_bytes == 0


_GARBAGE = st.one_of(
    st.text(max_size=60),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(
        ["", "max", "\0", "0x", "-1", "18446744073709551615", "[]", '{"devices":[{}]}', "0::/../..", "1 2 3"]
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), name=st.sampled_from(machines.NAMES))
def test_answers_of_any_kind_never_raise(data: st.DataObject, name: str) -> None:
    """Damage some answers of a real machine: a reading comes out, and never more memory than the host claims."""
    raw = machines.answers(name)
    for group in (raw.texts, raw.outputs, raw.targets):
        for key in (
            data.draw(st.lists(st.sampled_from(sorted(group)), max_size=4, unique=True)) if group else []
        ):
            group[key] = data.draw(_GARBAGE)
    reading = detect(raw=raw)
    assert reading.devices[0].kind is DeviceKind.CPU
    for found in reading.devices:
        assert found.usable_bytes >= 0
        if found.free_bytes is not None and found.total_bytes is not None:
            assert found.free_bytes <= found.total_bytes
    assert not any("the probe failed" in problem for problem in reading.problems)


def test_records_are_plain_json_of_one_format() -> None:
    for name in machines.NAMES:
        text = (machines.FOLDER / f"{name}.json").read_text(encoding="utf-8")
        assert json.loads(text)["format"] == 1
        assert isinstance(msgspec.json.decode(text, type=RawAnswers), RawAnswers)
