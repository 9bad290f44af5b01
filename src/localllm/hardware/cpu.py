"""The processor: its name, cores that may be used, and the instruction sets that llama.cpp has kernels for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from localllm.hardware.asking import Asker
from localllm.hardware.evidence import Answer, EvidenceBook
from localllm.hardware.memory import psutil_figures
from localllm.hardware.parsing import colon_values, cpu_list, to_int

# Flags of /proc/cpuinfo and of Apple's sysctl → the name shown. Only those that ggml's CPU backend has code for.
_X86 = {
    "sse3": "sse3", "pni": "sse3", "ssse3": "ssse3", "sse4_2": "sse4_2", "avx": "avx", "f16c": "f16c",
    "fma": "fma", "avx2": "avx2", "bmi2": "bmi2", "avx_vnni": "avx_vnni", "avx512f": "avx512f",
    "avx512vbmi": "avx512_vbmi", "avx512_vnni": "avx512_vnni", "avx512_bf16": "avx512_bf16",
    "amx_tile": "amx_tile", "amx_int8": "amx_int8", "amx_bf16": "amx_bf16",
}  # fmt: skip
_ARM = {
    "asimd": "neon", "neon": "neon", "asimdhp": "fp16", "asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16",
    "sve": "sve", "sve2": "sve2", "sme": "sme",
}  # fmt: skip
_APPLE = {
    "hw.optional.neon": "neon", "hw.optional.AdvSIMD": "neon", "hw.optional.arm.FEAT_FP16": "fp16",
    "hw.optional.arm.FEAT_DotProd": "dotprod", "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16", "hw.optional.arm.FEAT_SME": "sme",
}  # fmt: skip


class Processor(Struct, frozen=True, kw_only=True):
    """What is known of the processor. ``cores`` are physical cores this process may use, ``performance_cores`` the
    fast ones among them where a processor has two kinds; ``logical_cores`` counts hyper-threads too."""

    name: str
    vendor: str | None
    cores: int | None
    performance_cores: int | None
    logical_cores: int | None
    isa: tuple[str, ...]


def processor(asker: Asker, book: EvidenceBook, *, cpus_granted: float | None) -> Processor:
    """Ask for the processor; ``cpus_granted`` is what a cgroup's quota allows, in CPUs."""
    if asker.system == "Darwin":
        return _darwin(asker, book)
    if asker.system == "Linux":
        return _linux(asker, book, cpus_granted)
    figures = psutil_figures(asker)
    return Processor(
        name=_tidy(figures.get("name") or asker.architecture or "CPU"),
        vendor=None,
        cores=book.first("cores", Answer("psutil", _positive(figures.get("physical")))),
        performance_cores=None,
        logical_cores=_positive(figures.get("logical")),
        isa=(),
    )


def _linux(asker: Asker, book: EvidenceBook, cpus_granted: float | None) -> Processor:
    text = asker.text("/proc/cpuinfo") or ""
    blocks = [colon_values(block) for block in re.split(r"\n\s*\n", text) if block.strip()]
    cpus = [block for block in blocks if to_int(block.get("processor")) is not None]
    allowed = cpu_list(colon_values(asker.text("/proc/self/status")).get("Cpus_allowed_list"))
    usable = [cpu for cpu in cpus if not allowed or to_int(cpu.get("processor")) in allowed]
    physical = _physical(usable)
    fast = _fast_cpus(asker)
    quota = None if cpus_granted is None else max(1, int(cpus_granted))
    cores = book.lowest(
        "cores",
        Answer("/proc/cpuinfo, allowed CPUs", physical),
        Answer("cgroup CPU quota", quota, _quota_note(cpus_granted)),
    )
    performance = _physical([cpu for cpu in usable if to_int(cpu.get("processor")) in fast]) if fast else None
    if performance is not None:
        book.first("performance_cores", Answer("cpu_core / cpu_capacity in sysfs", performance))
    first = cpus[0] if cpus else {}
    vendor = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}.get(first.get("vendor_id", ""))
    board = (asker.text("/proc/device-tree/model") or "").strip("\0")
    name = book.first(
        "name",
        Answer("/proc/cpuinfo model name", first.get("model name") or None),
        Answer("/proc/device-tree/model", board or None),
        Answer("DMI product_name", asker.text("/sys/class/dmi/id/product_name") or None),
        Answer("uname", asker.architecture or None),
    )
    flags = (first.get("flags") or first.get("Features") or "").lower().split()
    isa = _known(flags, {**_X86, **_ARM})
    if re.search(r"rv64[a-z]*v", first.get("isa", "")):
        isa = (*isa, "rvv")
    book.first("isa", Answer("/proc/cpuinfo", " ".join(isa) or None))
    return Processor(
        name=_tidy(name or "CPU"),
        vendor=vendor,
        cores=cores,
        performance_cores=performance,
        logical_cores=len(usable) or None,
        isa=isa,
    )


def _darwin(asker: Asker, book: EvidenceBook) -> Processor:
    figures = colon_values(asker.output("sysctl cpu", ("sysctl", "hw", "machdep.cpu")))
    performance = _positive(figures.get("hw.perflevel0.physicalcpu"))
    isa = _known([key for key, value in figures.items() if value == "1"], _APPLE)
    brand = figures.get("machdep.cpu.brand_string")
    book.first("isa", Answer("sysctl hw.optional", " ".join(isa) or None))
    return Processor(
        name=book.first("name", Answer("sysctl machdep.cpu.brand_string", brand)) or "CPU",
        vendor="Apple"
        if (brand or "").startswith("Apple")
        else "Intel"
        if "Intel" in (brand or "")
        else None,
        cores=book.first("cores", Answer("sysctl hw.physicalcpu", _positive(figures.get("hw.physicalcpu")))),
        performance_cores=performance if "hw.perflevel1.physicalcpu" in figures else None,
        logical_cores=_positive(figures.get("hw.logicalcpu")),
        isa=isa,
    )


def _physical(cpus: list[dict[str, str]]) -> int | None:
    """Physical cores behind logical CPUs; processors that name no core have one CPU per core."""
    named = {(cpu.get("physical id"), cpu["core id"]) for cpu in cpus if "core id" in cpu}
    unnamed = sum("core id" not in cpu for cpu in cpus)
    return len(named) + unnamed or None


def _fast_cpus(asker: Asker) -> frozenset[int]:
    """Logical CPUs of the fast kind, empty where all are alike: Intel's P-cores, or Arm's of the highest capacity."""
    if asker.text("/sys/devices/cpu_atom/cpus"):
        return cpu_list(asker.text("/sys/devices/cpu_core/cpus"))
    if not asker.architecture.startswith(("aarch64", "arm")):
        return frozenset()
    capacities: dict[int, int] = {}
    for cpu in cpu_list(asker.text("/sys/devices/system/cpu/online")):
        capacity = to_int(asker.text(f"/sys/devices/system/cpu/cpu{cpu}/cpu_capacity"))
        if capacity is not None:
            capacities[cpu] = capacity
    highest = max(capacities.values(), default=0)
    # Cores of one kind differ by a few percent in what they may clock; another kind by a third or more.
    fast = frozenset(cpu for cpu, capacity in capacities.items() if capacity > 0.85 * highest)
    return fast if len(fast) < len(capacities) else frozenset()


def _known(flags: list[str], names: Mapping[str, str]) -> tuple[str, ...]:
    present = set(flags)
    return tuple(dict.fromkeys(name for flag, name in names.items() if flag in present))


def _positive(text: str | None) -> int | None:
    number = to_int(text)
    return number if number is not None and number > 0 else None


def _quota_note(cpus: float | None) -> str | None:
    return None if cpus is None else f"{cpus:.2f} CPUs of time"


def _tidy(name: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"\((?:R|TM)\)|\bCPU\b(?= @)| @ [\d.]+GHz", "", name)).strip()
