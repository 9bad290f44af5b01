"""One reading of the whole machine, merged from every probe: ``detect()``.

It never raises and never hangs: each probe runs in a thread of its own against one deadline, programs are killed when
it passes, and what failed or was late becomes a line in ``Machine.problems``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, structs

from localllm.core.device_table import DeviceClass, DeviceRow, match_device
from localllm.core.errors import HardwareError
from localllm.core.machine import Device, DeviceKind, Machine
from localllm.core.units import format_bytes
from localllm.hardware.amd import probe_amd
from localllm.hardware.apple import probe_apple
from localllm.hardware.asking import Asker, LiveAsker, RawAnswers, ReplayAsker, merge_answers
from localllm.hardware.cgroup import CgroupLimits, cgroup_limits
from localllm.hardware.cpu import processor
from localllm.hardware.devices import load_device_table
from localllm.hardware.evidence import Answer, EvidenceBook, overrule
from localllm.hardware.found import Found, Scene
from localllm.hardware.intel import probe_intel
from localllm.hardware.memory import HOST_MARGIN_RULE, HostMemory, host_margin_bytes, host_memory
from localllm.hardware.nvidia import probe_nvidia
from localllm.hardware.overrides import apply_overrides
from localllm.hardware.surroundings import container_name, is_wsl

Probe = Callable[[Scene], Found]

GPU_PROBES: Mapping[str, Probe] = {
    "NVIDIA": probe_nvidia,
    "AMD": probe_amd,
    "Intel": probe_intel,
    "Apple": probe_apple,
}


class Detection(Struct, frozen=True):
    """A reading together with the raw answers it was made from."""

    machine: Machine
    answers: RawAnswers


def detect(
    *,
    overrides: Mapping[str, str] | None = None,
    deadline_s: float = 3.0,
    raw: RawAnswers | None = None,
) -> Machine:
    """Read this machine, or replay the answers in ``raw``. Never raises, never takes longer than the deadline.

    ``overrides`` maps ``"cuda0.free_bytes"`` and the like to values that win over every source. Nothing is measured
    here; ``hardware.remembered`` adds the bandwidth of the memory.
    """
    return detect_with_answers(overrides=overrides, deadline_s=deadline_s, raw=raw).machine


def detect_with_answers(
    *,
    overrides: Mapping[str, str] | None = None,
    deadline_s: float = 3.0,
    raw: RawAnswers | None = None,
    probes: Mapping[str, Probe] = GPU_PROBES,
) -> Detection:
    """``detect``, with what every source answered (``localllm hw --save FILE``)."""
    until = time.monotonic() + deadline_s
    table, problems = _table()
    askers: list[LiveAsker] = []

    def asker() -> Asker:
        if raw is not None:
            return ReplayAsker(raw)
        askers.append(LiveAsker(deadline_s=max(0.1, until - time.monotonic() - 0.2)))
        return askers[-1]

    def read_host() -> _Host:
        return _host(asker(), table)

    host = _within_deadline({"host": read_host}, until)["host"]
    if not isinstance(host, _Host):
        problems.append(f"CPU and memory: {host}.")
        host = _unknown_host(asker())
    scene = Scene(asker=asker(), host=host.memory, table=table, wsl=host.wsl)

    def run(probe: Probe) -> Callable[[], Found]:
        own = Scene(asker=asker(), host=scene.host, table=table, wsl=scene.wsl)
        return lambda: probe(own)

    found = _within_deadline({name: run(probe) for name, probe in probes.items()}, until)
    machine = Machine(
        hostname=scene.asker.hostname,
        system=scene.asker.system,
        devices=_merge(host.device, found, problems),
        container=host.container,
        memory_limit_bytes=host.limit_bytes,
        problems=tuple(problems),
    )
    answers = raw if raw is not None else merge_answers([one.answers for one in askers])
    return Detection(apply_overrides(machine, overrides or {}), answers)


def _merge(cpu: Device, found: Mapping[str, object], problems: list[str]) -> tuple[Device, ...]:
    """The CPU and every GPU, each with an id of its own; what went wrong is added to ``problems``."""
    gpus: list[Device] = []
    evidence = list(cpu.evidence)
    taken: dict[str, int] = {}
    for name, outcome in found.items():
        if not isinstance(outcome, Found):
            problems.append(f"{name}: {outcome}.")
            continue
        for device in outcome.devices:
            kind = device.id.rstrip("0123456789")
            number = taken.get(kind, 0)
            taken[kind] = number + 1
            gpus.append(structs.replace(device, id=f"{kind}{number}"))
        evidence.extend(outcome.host_evidence)
        problems.extend(outcome.problems)
    return (_share_bandwidth(structs.replace(cpu, evidence=tuple(evidence)), gpus), *gpus)


def _share_bandwidth(cpu: Device, gpus: Sequence[Device]) -> Device:
    """Give the CPU the bandwidth of memory it shares with a GPU: the GPU's name says more about it."""
    shared = next((gpu.bandwidth_gb_per_s for gpu in gpus if gpu.unified and gpu.bandwidth_gb_per_s), None)
    return cpu if shared is None else overrule(cpu, "bandwidth_gb_per_s", "shared with the GPU", shared)


class _Host(Struct, frozen=True, kw_only=True):
    device: Device
    memory: HostMemory
    limit_bytes: int | None
    container: str | None
    wsl: bool


def _host(asker: Asker, table: tuple[DeviceRow, ...]) -> _Host:
    """The CPU with its RAM. What it may use is MemAvailable, bounded by every cgroup above this process."""
    book = EvidenceBook()
    memory = host_memory(asker, book)
    limits = cgroup_limits(asker)
    cpu = processor(asker, book, cpus_granted=limits.cpus)
    limit = limits.limit_bytes
    if limit is not None and memory.total_bytes is not None and limit >= memory.total_bytes:
        limit = None  # a limit above what there is limits nothing
    free = book.lowest("free_bytes", Answer("available RAM", memory.available_bytes), *_rooms(limits))
    planned_total = memory.total_bytes if limit is None else limit
    margin = host_margin_bytes(planned_total)
    book.first("margin_bytes", Answer(HOST_MARGIN_RULE, margin))
    processors = [row for row in table if row.device_class in (DeviceClass.CPU, DeviceClass.UNIFIED)]
    row = match_device(cpu.name, processors, memory_bytes=memory.total_bytes)
    bandwidth = book.first(
        "bandwidth_gb_per_s",
        Answer("device table", row.bandwidth_gb_per_s if row else None, row.name if row else None),
    )
    device = Device(
        id="cpu",
        kind=DeviceKind.CPU,
        name=cpu.name,
        backend="cpu",
        vendor=cpu.vendor,
        total_bytes=memory.total_bytes,
        free_bytes=free,
        margin_bytes=margin,
        bandwidth_gb_per_s=bandwidth,
        cores=cpu.cores,
        performance_cores=cpu.performance_cores,
        logical_cores=cpu.logical_cores,
        isa=cpu.isa,
        evidence=book.entries(),
    )
    return _Host(
        device=device,
        memory=HostMemory(total_bytes=memory.total_bytes, available_bytes=free),
        limit_bytes=limit,
        container=container_name(asker),
        wsl=is_wsl(asker),
    )


def _rooms(limits: CgroupLimits) -> list[Answer[int]]:
    return [
        Answer(f"cgroup {group.path}", group.room_bytes, f"limit {format_bytes(group.limit_bytes)}")
        for group in limits.memory
    ]


def _unknown_host(asker: Asker) -> _Host:
    device = Device(
        id="cpu",
        kind=DeviceKind.CPU,
        name="CPU",
        backend="cpu",
        total_bytes=None,
        free_bytes=None,
        margin_bytes=host_margin_bytes(None),
    )
    return _Host(device=device, memory=HostMemory(None, None), limit_bytes=None, container=None, wsl=False)


def _table() -> tuple[tuple[DeviceRow, ...], list[str]]:
    try:
        return load_device_table(), []
    except HardwareError as error:
        return (), [f"Device table: {error}"]


def _within_deadline(calls: Mapping[str, Callable[[], object]], until: float) -> dict[str, object]:
    """Run the calls side by side; a call that fails or is late leaves its reason, as text, instead of a result.

    The threads are daemons: one stuck in the kernel is left behind and does not keep the process alive.
    """
    outcomes: dict[str, object] = dict.fromkeys(calls, "no answer before the deadline")

    def run(name: str, call: Callable[[], object]) -> None:
        try:
            outcomes[name] = call()
        except Exception as error:  # noqa: BLE001 - a probe's bug must not cost the reading of the other devices
            outcomes[name] = f"the probe failed ({type(error).__name__}: {error})"

    threads = [
        threading.Thread(target=run, args=item, name=f"probe {item[0]}", daemon=True)
        for item in calls.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return dict(outcomes)
