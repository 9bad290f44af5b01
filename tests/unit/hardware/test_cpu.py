from __future__ import annotations

from localllm.hardware.cpu import Processor, processor
from localllm.hardware.evidence import EvidenceBook
from tests.support.machines import linux


def cpuinfo(*cores: int | None, flags: str = "avx2 fma") -> str:
    blocks = []
    for number, core in enumerate(cores):
        lines = [
            f"processor\t: {number}",
            "vendor_id\t: GenuineIntel",
            "model name\t: Intel(R) Core(TM) i7 CPU @ 3.60GHz",
        ]
        if core is not None:
            lines += ["physical id\t: 0", f"core id\t\t: {core}"]
        blocks.append("\n".join([*lines, f"flags\t\t: {flags}"]))
    return "\n\n".join(blocks)


def read(texts: dict[str, str], *, cpus_granted: float | None = None) -> Processor:
    return processor(linux(texts), EvidenceBook(), cpus_granted=cpus_granted)


def test_hyper_threads_are_not_cores() -> None:
    found = read({"/proc/cpuinfo": cpuinfo(0, 1, 0, 1)})
    assert (found.cores, found.logical_cores, found.performance_cores) == (2, 4, None)
    assert (found.name, found.vendor) == ("Intel Core i7", "Intel")


def test_only_the_cpus_we_may_run_on_count() -> None:
    found = read({"/proc/cpuinfo": cpuinfo(0, 1, 2, 3), "/proc/self/status": "Cpus_allowed_list:\t0-1"})
    assert (found.cores, found.logical_cores) == (2, 2)


def test_a_quota_bounds_the_cores_but_never_below_one() -> None:
    assert read({"/proc/cpuinfo": cpuinfo(0, 1, 2, 3)}, cpus_granted=2.5).cores == 2
    assert read({"/proc/cpuinfo": cpuinfo(0, 1, 2, 3)}, cpus_granted=0.5).cores == 1
    assert read({"/proc/cpuinfo": cpuinfo(0, 1)}, cpus_granted=64).cores == 2


def test_cpus_that_name_no_core_are_cores() -> None:
    assert read({"/proc/cpuinfo": cpuinfo(None, None, None)}).cores == 3


def test_performance_cores_of_a_hybrid_processor() -> None:
    texts = {
        "/proc/cpuinfo": cpuinfo(0, 0, 1, 1, 8, 9),
        "/sys/devices/cpu_core/cpus": "0-3",
        "/sys/devices/cpu_atom/cpus": "4-5",
    }
    found = read(texts)
    assert (found.cores, found.performance_cores) == (4, 2)


def test_instruction_sets_are_those_with_kernels_in_their_order() -> None:
    found = read({"/proc/cpuinfo": cpuinfo(0, flags="ht avx512f pni avx amx_int8 mmx")})
    assert found.isa == ("sse3", "avx", "avx512f", "amx_int8")


def test_risc_v_vectors_are_in_the_isa_string() -> None:
    with_vectors = "processor\t: 0\nisa\t: rv64imafdcv_zicbom"
    assert read({"/proc/cpuinfo": with_vectors}).isa == ("rvv",)
    assert read({"/proc/cpuinfo": "processor\t: 0\nisa\t: rv64imafdc"}).isa == ()


def test_an_unreadable_processor_is_named_by_its_architecture() -> None:
    found = read({})
    assert (found.name, found.cores, found.isa) == ("x86_64", None, ())
