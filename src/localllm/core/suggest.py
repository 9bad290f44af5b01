"""Which model to take: every model of a list, planned for this machine before anything of it is downloaded.

No benchmark stands behind the order, and none is claimed: of the models that fit and are quick enough for their
purpose, the one with more weights comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from localllm.core.derive import facts_from_figures
from localllm.core.device_table import DeviceRow
from localllm.core.errors import DoesNotFit
from localllm.core.facts import ModelFacts
from localllm.core.machine import Machine
from localllm.core.plan import APPETITES, Plan, Profile, Wish, plan_load
from localllm.core.shapes import Figures
from localllm.core.speed import active_parameters, corrected
from localllm.core.units import format_bytes, format_context

LEAST_TOKENS_PER_SECOND: Final[dict[Profile, float]] = {
    Profile.CHAT: 7.0,
    Profile.CODE: 15.0,
    Profile.AGENT: 15.0,
    Profile.LONG_DOCUMENT: 7.0,
    Profile.BATCH: 0.0,
}
"""A person reads about seven tokens a second; code and tool calls are waited for, not read."""

_SMALL: Final = 8_000_000_000
_LARGE: Final = 30_000_000_000


class Candidate(Struct, frozen=True, kw_only=True):
    """A model that could be taken, under the name that it is called here."""

    name: str
    figures: Figures


class Suggestion(Struct, frozen=True, kw_only=True):
    """One model as it would run here; bytes, and tokens per second. ``reason`` is the plan's sentence."""

    name: str
    quant: str
    parameters: int
    active_parameters: int
    file_bytes: int
    total_bytes: int
    context_length: int
    parallel: int
    whole: bool
    decode_tokens_per_second: float | None
    decode_low: float | None
    decode_high: float | None
    trained_context_length: int | None
    reason: str


def suggest(
    candidates: Iterable[Candidate],
    machine: Machine,
    *,
    profile: Profile = Profile.CHAT,
    device_table: Sequence[DeviceRow] = (),
    own_ratios: Sequence[float] = (),
    limit: int = 10,
) -> tuple[Suggestion, ...]:
    """The models to take on this machine for this purpose, best first.

    A model is listed at the best quantisation that fits whole, or in part where that is still quick enough.
    ``own_ratios``: measured over estimated decode rates on this machine.
    """
    ground = _Ground(machine, profile, tuple(device_table), tuple(own_ratios))
    found: list[tuple[float, Suggestion]] = []
    for candidate in candidates:
        suggestion = _best_form(candidate, ground)
        if suggestion is not None:
            found.append((worth(suggestion, profile), suggestion))
    found.sort(key=lambda pair: -pair[0])
    return tuple(suggestion for _, suggestion in found[:limit])


def worth(suggestion: Suggestion, profile: Profile) -> float:
    """What the order goes by: the geometric mean of all and active parameters, halved where the context falls short.

    Both are rules of thumb: a mixture answers like a dense model between its two sizes, and a model that was trained on
    less context than the task wants is of little use for it, and mostly an old one.
    """
    size = math.sqrt(suggestion.parameters * suggestion.active_parameters)
    trained = suggestion.trained_context_length
    return size / 2 if trained is not None and trained < APPETITES[profile].context else size


class _Ground(NamedTuple):
    """What all candidates of one list have in common."""

    machine: Machine
    profile: Profile
    device_table: tuple[DeviceRow, ...]
    own_ratios: tuple[float, ...]


def _best_form(candidate: Candidate, ground: _Ground) -> Suggestion | None:
    partial: Suggestion | None = None
    for quant in _ladder(candidate.figures):
        facts = facts_from_figures(candidate.figures, quant, name=candidate.name)
        try:
            plan = plan_load(
                facts,
                ground.machine,
                Wish(profile=ground.profile),
                model_path="",
                device_table=ground.device_table,
            )
        except DoesNotFit:
            continue
        suggestion = _suggestion(candidate, facts, plan, ground)
        if not _quick_enough(suggestion, ground.profile):
            continue
        if suggestion.whole:
            return suggestion
        partial = partial or suggestion
    return partial


def _ladder(figures: Figures) -> tuple[str, ...]:
    """Quantisations in the order they are worth having (see how ``core.recommend`` chooses)."""
    if figures.architecture == "gpt-oss":
        return ("MXFP4_MOE",)
    facts = facts_from_figures(figures, "Q4_K_M")
    small = ("Q8_0", "Q6_K", "Q5_K_M") if facts.parameters < _SMALL else ()
    large = ("Q3_K_M",) if facts.parameters >= _LARGE else ()
    return (*small, "Q4_K_M", "IQ4_XS", *large)


def _quick_enough(suggestion: Suggestion, profile: Profile) -> bool:
    """An unknown speed is held against a model only where part of it would run on the CPU."""
    if suggestion.decode_tokens_per_second is None:
        return suggestion.whole
    return suggestion.decode_tokens_per_second >= LEAST_TOKENS_PER_SECOND[profile]


def _suggestion(candidate: Candidate, facts: ModelFacts, plan: Plan, ground: _Ground) -> Suggestion:
    launch = plan.launch
    speed = corrected(plan.speed, ground.own_ratios) if plan.speed is not None else None
    whole = not ground.machine.gpus or (launch.gpu_layers >= facts.total_layers and not launch.cpu_moe_layers)
    return Suggestion(
        name=candidate.name,
        quant=facts.quant,
        parameters=facts.parameters,
        active_parameters=min(facts.parameters, round(active_parameters(facts))),
        file_bytes=facts.size_bytes,
        total_bytes=plan.memory.total_bytes,
        context_length=launch.context_length,
        parallel=launch.parallel,
        whole=whole,
        decode_tokens_per_second=speed.decode if speed else None,
        decode_low=speed.decode_low if speed else None,
        decode_high=speed.decode_high if speed else None,
        trained_context_length=facts.trained_context_length,
        reason=_reason(facts, plan, whole=whole),
    )


def _reason(facts: ModelFacts, plan: Plan, *, whole: bool) -> str:
    placed = "fits whole" if whole else f"{plan.launch.gpu_layers} of {facts.total_layers} layers on the GPU"
    if not whole and plan.launch.cpu_moe_layers:
        placed = f"experts of {plan.launch.cpu_moe_layers} of {facts.n_layer} layers on the CPU"
    return (
        f"{placed} with {format_context(plan.launch.context_length)} of context, "
        f"{format_bytes(plan.memory.total_bytes)} in all"
    )
