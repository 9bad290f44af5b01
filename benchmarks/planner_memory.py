"""The memory half of ``benchmarks.planner``: load logs against the closed formulas and the simulation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from benchmarks.planner_figures import Figure, Lacking, Report, at_most, median, percentile, plain
from localllm.core.compute_buffer import gpu_bytes_from_simulation
from localllm.core.derive import facts_from_figures, header_from_figures
from localllm.core.errors import LocalLLMError
from localllm.core.facts import ModelFacts
from localllm.core.gguf import GGUFHeader
from localllm.core.known_models import KnownModel, find_known_model, parse_known_models
from localllm.core.kv_cache import layer_caches
from localllm.core.launch import KV_CACHE_TYPES, LaunchPlan
from localllm.core.machine import Device, DeviceKind
from localllm.core.memory import Estimator, MemoryEstimate
from localllm.core.quant import base_name
from localllm.core.quant_mix import known_mix
from localllm.core.shapes import Figures
from localllm.core.units import MIB
from localllm.engines.llama_cpp.simulate import Simulator, available, question_of
from localllm.hardware.assets import asset_path

OUTPUTS_LIMITED_SINCE: Final = "2026-09"
"""From these builds on a context makes room for as many logits as asked for, before for a whole batch."""

FLASH_ATTENTION_AUTO_SINCE: Final = "2025-09"

_HOST = ("CPU", "Host", "host")
_REPACKED = ("AARCH64", "REPACK", "AMX")


class Buffers(Struct, frozen=True, kw_only=True):
    """One device's part of a log, in MiB."""

    device: str
    model: float | None = None
    kv: float | None = None
    kv_swa: float | None = None
    rs: float | None = None
    compute: float | None = None
    output: float | None = None


class Row(Struct, frozen=True, kw_only=True):
    """One load: what was asked for and what was measured; None = the log does not say."""

    model: str
    devices: tuple[Buffers, ...]
    date: str | None = None
    build: str | None = None
    arch: str | None = None
    quant: str | None = None
    n_layer: int | None = None
    n_embd: int | None = None
    n_head: int | None = None
    n_head_kv: int | None = None
    head_dim_k: int | None = None
    head_dim_v: int | None = None
    n_vocab: int | None = None
    n_ff: int | None = None
    n_expert: int | None = None
    n_expert_used: int | None = None
    swa_window: int | None = None
    n_ctx: int | None = None
    n_seq: int | None = None
    kv_unified: bool | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_outputs_max: int | None = None
    flash_attn: int | bool | None = None
    kv_type_k: str | None = None
    kv_type_v: str | None = None
    n_gpu_layers: int | None = None
    n_cpu_moe: int | None = None
    total_measured_mib: float | None = None
    note: str | None = None

    def measured(self, field: str, *, host: bool | None = None) -> float | None:
        """MiB of one kind over all devices (or the host's, or the others'); repacked copies do not count."""
        found = [
            value
            for device in self.devices
            if (host is None or _is_host(device.device) == host)
            and not any(word in device.device for word in _REPACKED)
            and (value := getattr(device, field)) is not None
        ]
        return sum(found) if found else None


class Errors:
    """Relative errors in percent (positive: the estimate is above the truth) of one estimator."""

    def __init__(self) -> None:
        self.kv: list[float] = []
        self.weights: list[float] = []
        self.compute: list[float] = []
        self.total: list[float] = []
        self.recent_compute: list[float] = []


class Case(Struct, frozen=True):
    """A row that is understood: the model it is about, how it was loaded, and on what kinds of device."""

    row: Row
    label: str
    facts: ModelFacts
    header: GGUFHeader
    plan: LaunchPlan
    gpus: tuple[Device, ...]
    outputs: int


def measure_memory(path: Path, *, report: Report = None) -> tuple[list[Figure], dict[str, object]]:
    """All memory figures over a truth file."""
    known = parse_known_models(asset_path("known_models.jsonl").read_text(encoding="utf-8"))
    lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    formulas, simulated, lacking = Errors(), Errors(), Lacking()
    with _simulator() as simulator:
        for number, line in enumerate(lines, start=1):
            try:
                row = msgspec.json.decode(line, type=Row)
            except msgspec.DecodeError as error:
                lacking.add("everything", str(number), f"not a row: {error}")
                continue
            label = f"{number} {row.model}"
            case = _understand(row, label, known, lacking)
            if case is None:
                continue
            judged = _judge(case, formulas, lacking)
            if simulator is not None:
                judged += " | " + _judge_simulation(case, simulator, simulated, lacking)
            if report is not None:
                report(f"{label}: {judged}")
    reason = None if available() else "llama-cpp-python is not installed"
    figures = [*_figures("", formulas, None), *_figures("sim_", simulated, reason)]
    runs = {
        "rows": len(lines),
        "judged": {
            kind: len(getattr(formulas, kind))
            for kind in ("kv", "weights", "compute", "total", "recent_compute")
        },
        "lacking": lacking.summary(),
    }
    return figures, runs


def _figures(prefix: str, errors: Errors, reason: str | None) -> list[Figure]:
    magnitude = {
        kind: [abs(e) for e in getattr(errors, kind)] for kind in ("kv", "weights", "compute", "total")
    }
    under = sum(error < -0.5 for error in errors.recent_compute)
    return [
        at_most(prefix + "kv_max_error_percent", max(magnitude["kv"], default=None), "%", 0.2, reason),
        plain(prefix + "kv_rows", None if reason else len(errors.kv), "rows", reason),
        at_most(prefix + "weights_median_error_percent", median(magnitude["weights"]), "%", 0.1, reason),
        at_most(prefix + "compute_median_error_percent", median(magnitude["compute"]), "%", 10, reason),
        at_most(prefix + "compute_under_count", None if reason else under, "rows", 0, reason),
        at_most(prefix + "total_median_error_percent", median(magnitude["total"]), "%", 3, reason),
        at_most(prefix + "total_p95_error_percent", percentile(magnitude["total"], 95), "%", 6, reason),
    ]


@contextlib.contextmanager
def _simulator() -> Iterator[Simulator | None]:
    if not available():
        yield None
        return
    with Simulator() as simulator:
        yield simulator


# ---------------------------------------------------------------- understanding a row


def _understand(row: Row, label: str, known: tuple[KnownModel, ...], lacking: Lacking) -> Case | None:
    figures = _figures_of(row, known)
    if figures is None:
        lacking.add("everything", label, "the model's figures are not given and not known")
        return None
    if row.n_ctx is None:
        lacking.add("everything", label, "no context length")
        return None
    kinds = {kind.lower() for kind in (row.kv_type_k, row.kv_type_v) if kind}
    if not kinds <= set(KV_CACHE_TYPES):
        lacking.add("everything", label, f"an unknown KV type among {sorted(kinds)}")
        return None
    if row.note is not None and "re-check" in row.note:
        lacking.add("everything", label, "the row itself doubts its figures")
        return None
    quant = row.quant if row.quant and known_mix(row.quant) else None
    if quant is None:
        lacking.add("weights", label, f"no recipe for the quantisation {row.quant!r}")
    # files of Q4_0 are made with an importance matrix since 2024, which changes four of their layers
    matrix = (row.date or "") >= "2024"
    near = base_name(row.quant) if row.quant else ""
    recipe = quant or (near if known_mix(near) else "Q4_K_M")
    header = header_from_figures(figures, recipe, importance_matrix=matrix)
    facts = facts_from_figures(figures, recipe, importance_matrix=matrix)
    facts = structs.replace(facts, quant=quant or "")
    sequences = row.n_seq or 1
    gpu_names = [d.device for d in row.devices if not _is_host(d.device)]
    layers = row.n_gpu_layers
    if layers is None:
        layers = facts.total_layers if any(d.kv for d in row.devices if not _is_host(d.device)) else 0
    flash = row.flash_attn
    if flash is None and (row.date or "") >= FLASH_ATTENTION_AUTO_SINCE:
        flash = 1
    if flash is None:
        lacking.add("compute", label, "flash attention on or off is not given")
    plan = LaunchPlan(
        model_path="",
        context_length=row.n_ctx // sequences,
        parallel=sequences,
        unified_kv=row.kv_unified is not False,
        kv_type_k=(row.kv_type_k or "f16").lower(),
        kv_type_v=(row.kv_type_v or row.kv_type_k or "f16").lower(),
        flash_attention="auto" if flash is None else "on" if flash else "off",
        gpu_layers=min(layers, facts.total_layers),
        cpu_moe_layers=row.n_cpu_moe or 0,
        batch=row.n_batch or 2048,
        ubatch=min(row.n_ubatch or 512, row.n_batch or 2048),
    )
    return Case(row, label, facts, header, plan, tuple(_gpu(name) for name in gpu_names), _outputs(row, plan))


def _outputs(row: Row, plan: LaunchPlan) -> int:
    if row.n_outputs_max is not None:
        return row.n_outputs_max
    limited = (row.date or "") >= OUTPUTS_LIMITED_SINCE
    return plan.parallel if limited else min(plan.ubatch, plan.context_length * plan.parallel)


def _gpu(name: str) -> Device:
    backend = "cuda"
    for word, other in (("ROCm", "rocm"), ("Vulkan", "vulkan"), ("Metal", "metal"), ("SYCL", "sycl")):
        if word in name:
            backend = other
    return msgspec.convert(
        {
            "id": name,
            "kind": DeviceKind.GPU,
            "name": name,
            "backend": backend,
            "total_bytes": 1 << 40,
            "free_bytes": 1 << 40,
            "margin_bytes": 0,
        },
        Device,
    )


def _figures_of(row: Row, known: tuple[KnownModel, ...]) -> Figures | None:
    """What the row gives, over what is known of a model of that name (or of those widths)."""
    match = find_known_model(row.model, known)
    figures = match.figures if match is not None and _agrees(row, match.figures) else None
    if figures is None and row.n_embd is not None:
        figures = next(
            (k.figures for k in known if row.n_layer and _agrees(row, k.figures, strict=True)), None
        )
    given: dict[str, object] = {
        "architecture": row.arch,
        "n_layer": row.n_layer,
        "n_embd": row.n_embd,
        "n_head": row.n_head,
        "n_head_kv": row.n_head_kv,
        "head_dim": row.head_dim_k,
        "head_dim_v": row.head_dim_v,
        "n_vocab": row.n_vocab,
        "n_ff": row.n_ff,
        "n_expert": row.n_expert,
        "n_expert_used": row.n_expert_used,
        "sliding_window": row.swa_window,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if figures is not None:
        return figures if figures.latent else structs.replace(figures, **given)
    needed = {"architecture", "n_layer", "n_embd", "n_head"}
    if not needed <= given.keys():
        return None
    return msgspec.convert({"n_vocab": 32_000, **given}, Figures)


def _agrees(row: Row, figures: Figures, *, strict: bool = False) -> bool:
    pairs = ((row.n_layer, figures.n_layer), (row.n_embd, figures.n_embd), (row.arch, figures.architecture))
    return all(mine == theirs or (mine is None and not strict) for mine, theirs in pairs)


def _is_host(device: str) -> bool:
    return any(word in device for word in _HOST)


# ---------------------------------------------------------------- judging an estimate


def _judge(case: Case, errors: Errors, lacking: Lacking) -> str:
    estimate = Estimator(case.facts, case.gpus).estimate(case.plan, outputs=case.outputs)
    cuda = any(gpu.backend in ("cuda", "rocm") for gpu in case.gpus)
    kv = sum(cache.keys_values for cache in layer_caches(case.facts, case.plan, cuda=cuda))
    words = _note_kv(case, kv, errors, lacking)
    words += _note_weights(case, estimate, errors, lacking)
    words += _note_compute(case, _compute(case, estimate), errors)
    return words + _note_total(case, estimate, errors)


def _note_weights(case: Case, estimate: MemoryEstimate, errors: Errors, lacking: Lacking) -> str:
    """Only the sides (host, devices) whose buffers the log shows are compared."""
    row = case.row
    if not case.facts.quant:
        return ""
    if case.gpus and row.n_gpu_layers is None and _maps_whole_file(case, estimate):
        lacking.add("weights", case.label, "how many layers were offloaded is not given")
        return ""
    on_host, on_gpus = row.measured("model", host=True), row.measured("model", host=False)
    mine = estimate.devices[0].weights if on_host is not None else 0
    mine += sum(device.weights for device in estimate.devices[1:]) if on_gpus is not None else 0
    return _note("weights", (on_host or 0.0) + (on_gpus or 0.0), mine, errors.weights)


def _maps_whole_file(case: Case, estimate: MemoryEstimate) -> bool:
    """The host buffer is larger than the input layer: some blocks stayed there too."""
    on_host = case.row.measured("model", host=True)
    return on_host is not None and on_host * MIB > 1.5 * estimate.devices[0].weights


def _note_kv(case: Case, kv: int, errors: Errors, lacking: Lacking) -> str:
    parts = [case.row.measured(kind) for kind in ("kv", "kv_swa")]
    if parts[0] is None:
        lacking.add("kv", case.label, "not measured")
        return ""
    return _note("kv", sum(part or 0.0 for part in parts), kv, errors.kv)


def _note_compute(case: Case, compute: int, errors: Errors) -> str:
    if case.plan.flash_attention == "auto":
        return ""
    measured = case.row.measured("compute", host=not case.gpus)
    before = len(errors.compute)
    words = _note("compute", measured, compute, errors.compute)
    if (case.row.date or "") >= OUTPUTS_LIMITED_SINCE:
        errors.recent_compute += errors.compute[before:]
    return words


def _compute(case: Case, estimate: MemoryEstimate) -> int:
    devices = estimate.devices[1:] if case.gpus else estimate.devices
    return sum(device.compute for device in devices)


def _note_total(case: Case, estimate: MemoryEstimate, errors: Errors) -> str:
    """The process's whole claim where it was measured, else the sum of what was, on the main device."""
    row, devices = case.row, estimate.devices[1:] if case.gpus else estimate.devices
    if not case.facts.quant or case.plan.flash_attention == "auto":
        return ""
    if row.total_measured_mib is not None and case.gpus:
        return _note("total", row.total_measured_mib, sum(d.total for d in devices), errors.total)
    parts = [row.measured(kind, host=not case.gpus) for kind in ("model", "kv", "compute")]
    if any(part is None for part in parts):
        return ""
    state = row.measured("rs", host=not case.gpus)
    mine = sum(device.weights + device.kv + device.compute for device in devices)
    return _note("total", sum(part or 0.0 for part in parts) + (state or 0.0), mine, errors.total)


def _note(kind: str, measured_mib: float | None, estimated_bytes: int, errors: list[float]) -> str:
    if not measured_mib:
        return ""
    error = (estimated_bytes / MIB / measured_mib - 1) * 100
    errors.append(error)
    return f"{kind} {estimated_bytes / MIB:.2f}/{measured_mib:.2f} ({error:+.2f} %) "


def _judge_simulation(case: Case, simulator: Simulator, errors: Errors, lacking: Lacking) -> str:
    """llama.cpp's own answer, from its CPU build, brought over to a GPU build where the row is about one."""
    plan = case.plan
    partial = case.gpus and (plan.cpu_moe_layers or 0 < plan.gpu_layers < case.facts.total_layers)
    if len(case.gpus) > 1 or partial or (case.gpus and plan.gpu_layers == 0):
        lacking.add("simulation", case.label, "a CPU build cannot simulate layers on several devices")
        return ""
    try:
        question = question_of(case.header, case.facts.n_vocab, plan, outputs=case.outputs)
        buffers = simulator.ask(question)
    except LocalLLMError as error:
        lacking.add("simulation", case.label, error.message)
        return ""
    kv = sum(b.bytes for b in buffers if b.kind == "kv")
    state = sum(b.bytes for b in buffers if b.kind == "recurrent")
    compute = sum(b.bytes for b in buffers if b.kind == "compute")
    if case.gpus:
        compute = gpu_bytes_from_simulation(case.facts, plan, compute)
    estimate = Estimator(case.facts, case.gpus).estimate(plan, outputs=case.outputs)
    device = structs.replace(estimate.devices[-1], kv=kv + state, compute=compute)
    estimate = MemoryEstimate((*estimate.devices[:-1], device))
    words = _note_kv(case, kv, errors, Lacking())
    words += _note_weights(case, estimate, errors, Lacking())
    return words + _note_compute(case, compute, errors) + _note_total(case, estimate, errors)
