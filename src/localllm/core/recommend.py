"""The fit table: every quantisation of a model against this machine, and which one to take, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct, structs

from localllm.core.budget import Budget, budget_of, usable_gpus
from localllm.core.control import FitRow, FitTable, Verdict
from localllm.core.derive import mix_bytes, requantised
from localllm.core.device_table import DeviceRow
from localllm.core.facts import ModelFacts
from localllm.core.launch import LaunchPlan
from localllm.core.learn import Corrections
from localllm.core.machine import Device, Machine
from localllm.core.memory import DEFAULT_ENGINE, HABITS, Estimator, Extras, MemoryEstimate
from localllm.core.plan import APPETITES, CPU_UBATCH, halved
from localllm.core.quant import BITS_PER_WEIGHT, base_name, quality_of
from localllm.core.search import MINIMUM_CONTEXT, Found, Search
from localllm.core.speed import corrected, estimate_speed
from localllm.core.units import format_bytes

OFFERED: Final = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q4_K_S", "Q3_K_M", "Q2_K")
"""The quants shown when nothing else is known to exist, best first."""

TIGHT_SHARE: Final = 0.05
SPACIOUS_SHARE: Final = 0.25
"""Q8_0 is advised only when this part of the budget stays free."""

_NATIVE: Final = frozenset({"MXFP4_MOE"})


class _Sizing(Struct, frozen=True):
    facts: ModelFacts
    file_bytes: int
    source: Literal["file", "listed", "formula"]


class _Ground(Struct, frozen=True, kw_only=True):
    """What all rows of one table have in common: the plan they try and the machine they try it on."""

    base: LaunchPlan
    budget: Budget
    gpus: tuple[Device, ...]
    cpu: Device
    extras: Extras | None
    device_table: tuple[DeviceRow, ...]
    own_ratios: tuple[float, ...]
    corrections: Corrections | None

    def search(self, facts: ModelFacts) -> Search:
        estimator = Estimator(
            facts,
            self.gpus,
            extras=self.extras,
            habits=HABITS[DEFAULT_ENGINE],
            correct=self.corrections.applied if self.corrections is not None else None,
        )
        return Search(estimator, self.budget, self.base)


def fit_table(
    facts: ModelFacts,
    machine: Machine,
    *,
    model: str,
    here: Mapping[str, int],
    listed: Mapping[str, int] | None = None,
    context_length: int | None = None,
    kv_type: str = "f16",
    parallel: int = 1,
    available_bytes: Mapping[str, int] | None = None,
    extras: Extras | None = None,
    device_table: Sequence[DeviceRow] = (),
    own_ratios: Sequence[float] = (),
    corrections: Corrections | None = None,
) -> FitTable:
    """Every quant of the model that is ``here`` (quant → file bytes), ``listed`` at its source, or can be made.

    The rows are for one context length: the one given, else the longest usual one at which a four-bit file fits
    whole. ``facts`` may be of any one of the files. ``own_ratios``: measured over estimated decode rates on this
    machine; ``corrections``: what earlier loads here have taught.
    """
    budget = budget_of(machine, available_bytes)
    gpus = usable_gpus(machine, budget)
    ground = _Ground(
        base=LaunchPlan(
            model_path="",
            context_length=context_length or MINIMUM_CONTEXT,
            parallel=parallel,
            kv_type_k=kv_type,
            kv_type_v=kv_type,
            ubatch=512 if gpus else CPU_UBATCH,
            flash_attention="auto" if kv_type in ("f16", "bf16", "f32") else "on",
            tensor_split=tuple(float(budget.of(gpu.id)) for gpu in gpus) if len(gpus) > 1 else (),
        ),
        budget=budget,
        gpus=gpus,
        cpu=machine.cpu,
        extras=extras,
        device_table=tuple(device_table),
        own_ratios=tuple(own_ratios),
        corrections=corrections,
    )
    sizings = _sizings(facts, here, listed or {})
    if context_length is None:
        ground = structs.replace(ground, base=_with_usual_context(sizings, ground))
    context = ground.base.context_length
    rows = [_row(sizing, quant, quant in here, ground) for quant, sizing in sizings.items()]
    rows.sort(key=lambda row: -row.file_bytes)
    rows, sentence = _recommend(rows, facts)
    trained = facts.trained_context_length
    warnings = []
    if trained is not None and context > trained:
        warnings.append(f"The model was trained on {trained} tokens; past that its answers degrade.")
    return FitTable(
        model=model,
        device=" + ".join(gpu.name for gpu in gpus) or machine.cpu.name,
        context_length=context,
        kv_type_k=kv_type,
        kv_type_v=kv_type,
        parallel=parallel,
        trained_context_length=trained,
        rows=tuple(rows),
        recommendation=sentence,
        warnings=tuple(warnings),
    )


def _with_usual_context(sizings: Mapping[str, _Sizing], ground: _Ground) -> LaunchPlan:
    """A context that nobody asked for must not be what pushes a model off the GPU."""
    sizing = next((sizings[q] for q in ("IQ4_XS", "Q4_K_M") if q in sizings), next(iter(sizings.values())))
    search, base = ground.search(sizing.facts), ground.base
    usual = APPETITES[None]
    trained = sizing.facts.trained_context_length or usual.context
    contexts = halved(min(usual.context, trained), usual.least)
    found = search.whole(contexts, (base.parallel,), search.total_layers if ground.gpus else 0)
    return structs.replace(base, context_length=found.plan.context_length if found else min(8_192, trained))


def _sizings(facts: ModelFacts, here: Mapping[str, int], listed: Mapping[str, int]) -> dict[str, _Sizing]:
    found: dict[str, _Sizing] = {}
    sources: tuple[tuple[Literal["file", "listed"], Mapping[str, int]], ...] = (
        ("file", here),
        ("listed", listed),
    )
    for source, sizes in sources:
        for quant, file_bytes in sizes.items():
            if quant == facts.quant and file_bytes == facts.size_bytes:
                found[quant] = _Sizing(facts, file_bytes, source)
            elif quant not in found:
                found[quant] = _Sizing(requantised(facts, quant, file_bytes=file_bytes), file_bytes, source)
    if facts.quant not in found:
        found[facts.quant] = _Sizing(facts, facts.size_bytes, "file")
    if facts.quant in _NATIVE:
        return found  # made by its makers in this type: other quants of it are larger or worse
    for quant in OFFERED:
        if quant not in found:
            other = requantised(facts, quant)
            found[quant] = _Sizing(other, mix_bytes(other) + _header_bytes(facts), "formula")
    return found


def _header_bytes(facts: ModelFacts) -> int:
    return max(facts.size_bytes - mix_bytes(facts), 0)


def _row(sizing: _Sizing, quant: str, here: bool, ground: _Ground) -> FitRow:
    facts, budget, gpus = sizing.facts, ground.budget, ground.gpus
    search = ground.search(facts)
    found, verdict = _tried(search, ground)
    limit = facts.trained_context_length or ground.base.context_length
    speed = None
    if verdict is not Verdict.NO:
        speed = estimate_speed(facts, found.plan, gpus, ground.cpu, ground.device_table)
    if speed is not None:
        speed = corrected(speed, ground.own_ratios)
    quality = quality_of(quant)
    counted = _counted(found, facts, has_gpu=bool(gpus))
    return FitRow(
        quant=quant,
        here=here,
        file_bytes=sizing.file_bytes,
        file_bytes_source=sizing.source,
        weights_bytes=counted.weights_bytes,
        kv_bytes=counted.kv_bytes,
        compute_bytes=counted.compute_bytes,
        overhead_bytes=counted.output_bytes + counted.overhead_bytes,
        total_bytes=counted.total_bytes,
        budget_bytes=sum(budget.of(device.device_id) for device in counted.devices),
        verdict=verdict,
        gpu_layers=found.plan.gpu_layers if gpus else None,
        total_layers=facts.total_layers,
        longest_context=None if verdict is Verdict.NO else search.longest_context(found.plan, limit),
        decode_tokens_per_second=speed.decode if speed else None,
        decode_low=speed.decode_low if speed else None,
        decode_high=speed.decode_high if speed else None,
        prefill_tokens_per_second=speed.prefill if speed else None,
        speed_reason=speed.reason if speed else None,
        quality=quality.words if quality else None,
        quality_kld=quality.mean_kld if quality else None,
    )


def _tried(search: Search, ground: _Ground) -> tuple[Found, Verdict]:
    """Whole on the GPUs (or on the CPU of a machine without), else in part, else not at all."""
    base = ground.base
    whole = search.try_plan(structs.replace(base, gpu_layers=search.total_layers if ground.gpus else 0))
    if whole is not None:
        tight = ground.budget.spare_share(whole.estimate) < TIGHT_SHARE
        return whole, Verdict.TIGHT if tight else Verdict.FITS
    partial = search.partial(base.context_length, base.parallel) if ground.gpus else None
    if partial is not None:
        return partial, Verdict.PARTIAL
    plan = structs.replace(base, gpu_layers=search.total_layers if ground.gpus else 0)
    return Found(plan, search.estimate(plan)), Verdict.NO


def _counted(found: Found, facts: ModelFacts, *, has_gpu: bool) -> MemoryEstimate:
    """The devices whose memory decides: the GPUs, and the CPU only when it holds layers or experts."""
    plan, devices = found.plan, found.estimate.devices
    on_cpu = plan.gpu_layers < facts.total_layers or plan.cpu_moe_layers > 0
    if not has_gpu or on_cpu:
        return found.estimate
    return MemoryEstimate(devices[1:])


def _recommend(rows: list[FitRow], facts: ModelFacts) -> tuple[list[FitRow], str]:
    """Mark one row, with its reason. The rules are argued in the docs (how quants are chosen)."""
    chosen, reason = _choice(rows, facts)
    if chosen is None:
        smallest = min(rows, key=lambda row: row.total_bytes)
        missing = smallest.total_bytes - smallest.budget_bytes
        return rows, (
            f"No quantisation fits: even {smallest.quant} lacks {format_bytes(max(missing, 0))}; take a smaller model."
        )
    marked = [
        structs.replace(row, recommended=True, reason=reason) if row.quant == chosen.quant else row
        for row in rows
    ]
    return marked, f"{chosen.quant}: {reason}"


def _choice(rows: list[FitRow], facts: ModelFacts) -> tuple[FitRow | None, str]:
    by_name = {base_name(row.quant): row for row in reversed(rows)}
    whole = {n: r for n, r in by_name.items() if r.verdict in (Verdict.FITS, Verdict.TIGHT)}
    if facts.quant in _NATIVE and facts.quant in by_name:
        row = by_name[facts.quant]
        if row.verdict is not Verdict.NO:
            return row, "the model was trained in this type, so anything else is larger or worse."
    spacious = whole.get("Q8_0")
    share = 1 - SPACIOUS_SHARE if facts.parameters < 4_000_000_000 else 0.5
    if spacious is not None and spacious.total_bytes <= share * spacious.budget_bytes:
        return spacious, "memory is plentiful, and nothing distinguishable is lost."
    ladder: list[tuple[str, str]] = []
    if facts.parameters < 8_000_000_000:
        ladder += [
            ("Q6_K", "a small model loses most by quantisation, and this is near lossless."),
            ("Q5_K_M", "under 8B parameters the step from Q4_K_M is worth its memory."),
        ]
    ladder += [
        ("Q4_K_M", "the best balance: about a quarter of the original's memory, a loss few notice."),
        ("IQ4_XS", "Q4_K_M is just too large, and this saves 9 % at almost the same quality."),
        ("Q4_K_S", "Q4_K_M is just too large."),
    ]
    if facts.parameters >= 30_000_000_000:
        ladder.append(("Q3_K_M", "a large model stands three bits better than a small one four."))
    for name, reason in ladder:
        if name in whole and whole[name].verdict is Verdict.FITS:
            return whole[name], reason
    for name, reason in ladder:
        if name in whole:
            return whole[name], reason + " It is tight: little memory stays free."
    for name in ("Q4_K_M", "IQ4_XS", "Q4_K_S", "Q3_K_M"):
        part = by_name.get(name)
        if part is not None and part.verdict is Verdict.PARTIAL:
            return part, "no four-bit quantisation fits on the GPU whole; part of it runs on the CPU, slower."
    if "Q3_K_M" in whole:
        return whole["Q3_K_M"], "nothing larger fits; a smaller model at four bits would answer better."
    fitting = [
        row
        for row in rows
        if row.verdict is not Verdict.NO and BITS_PER_WEIGHT.get(base_name(row.quant), 9) > 3.2
    ]
    if fitting:
        return fitting[0], "the only one that fits; a smaller model would answer better."
    return None, ""
