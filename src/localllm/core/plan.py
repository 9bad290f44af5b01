"""The load path's question: with this file, on this machine, now, how is the model to be loaded?

``plan_load`` turns a wish (anything may be left open) into a launch plan that fits, with its memory, its speed and
the reason in one sentence; or says that nothing fits, and by how much, with ways out that were computed, not guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct, structs

from localllm.core.budget import Budget, budget_of, usable_gpus
from localllm.core.device_table import DeviceRow
from localllm.core.errors import DoesNotFit
from localllm.core.facts import ModelFacts
from localllm.core.ggml import tensor_type
from localllm.core.kv_cache import cache_widths
from localllm.core.launch import LaunchPlan
from localllm.core.learn import Corrections
from localllm.core.machine import Machine
from localllm.core.memory import CPU_ID, DEFAULT_ENGINE, HABITS, Estimator, Extras, MemoryEstimate
from localllm.core.search import MINIMUM_CONTEXT, Found, Search, with_context
from localllm.core.speed import SpeedEstimate, estimate_speed
from localllm.core.units import format_bytes, format_context
from localllm.core.ways_out import ways_out

DEFAULT_UBATCH: Final = 512
"""llama.cpp's own: common.h, n_ubatch."""


CPU_UBATCH: Final = 256
"""Larger ones gain a CPU nothing, and a step cannot be interrupted: everybody else's tokens wait for it."""


class Profile(StrEnum):
    """What the model is loaded for; decides how much context and how many sequences are worth their memory."""

    CHAT = "chat"
    CODE = "code"
    AGENT = "agent"
    LONG_DOCUMENT = "long-document"
    BATCH = "batch"


class Appetite(Struct, frozen=True):
    """``context`` is asked for first and halved down to ``least``; ``parallels`` are tried in order."""

    context: int
    least: int
    parallels: tuple[int, ...]


APPETITES: Final[dict[Profile | None, Appetite]] = {
    None: Appetite(32_768, 4_096, (4, 2, 1)),
    Profile.CHAT: Appetite(16_384, 4_096, (2, 1)),
    Profile.CODE: Appetite(32_768, 8_192, (2, 1)),
    Profile.AGENT: Appetite(65_536, 32_768, (2, 1)),
    Profile.LONG_DOCUMENT: Appetite(131_072, 16_384, (1,)),
    Profile.BATCH: Appetite(8_192, 2_048, (16, 8, 4, 2, 1)),
}


EMBEDDING_APPETITE: Final = Appetite(2_048, 512, (4, 2, 1))
"""An input is computed at once, so its longest length is paid for in scratch memory."""


class Wish(Struct, frozen=True, kw_only=True):
    """What the person asked for; None leaves it to the planner.

    ``available_bytes`` (device id → bytes) replaces what the machine reports free. ``force`` plans even what does
    not fit, and a longer context than the model was trained on. ``kv_type`` is for keys and values alike. ``engine`` names the engine whose habits count
    (None = the bundled server).
    """

    context_length: int | None = None
    parallel: int | None = None
    kv_type: str | None = None
    gpu_layers: int | None = None
    threads: int | None = None
    batch_threads: int | None = None
    ubatch: int | None = None
    profile: Profile | None = None
    available_bytes: dict[str, int] | None = None
    engine: str | None = None
    embedding: bool = False
    force: bool = False


class Plan(Struct, frozen=True, kw_only=True):
    launch: LaunchPlan
    memory: MemoryEstimate
    speed: SpeedEstimate | None = None
    reason: str
    warnings: tuple[str, ...] = ()


def plan_load(
    facts: ModelFacts,
    machine: Machine,
    wish: Wish,
    *,
    model_path: str,
    chat_template: str | None = None,
    stop: Sequence[str] = (),
    mmproj_path: str | None = None,
    extras: Extras | None = None,
    device_table: Sequence[DeviceRow] = (),
    corrections: Corrections | None = None,
) -> Plan:
    """Decide how to load the model within what is free now.

    ``extras`` are the bytes of files that are loaded with it; ``device_table`` sharpens the speed estimate;
    ``corrections`` are what earlier loads have taught.

    Raises:
        DoesNotFit: with ``needed_bytes``, ``available_bytes``, ``device`` and ``ways_out`` in its details.
    """
    budget = budget_of(machine, wish.available_bytes)
    warnings: list[str] = []
    has_gpu = bool(usable_gpus(machine, budget))
    base = structs.replace(
        _base_plan(facts, wish, warnings, has_gpu=has_gpu),
        model_path=model_path,
        chat_template=chat_template,
        stop=tuple(stop),
        mmproj_path=mmproj_path,
    )
    contexts, parallels = _candidates(facts, wish, warnings)
    estimator = Estimator(
        facts,
        machine.gpus,
        extras=extras,
        habits=HABITS.get(wish.engine or DEFAULT_ENGINE),
        correct=corrections.applied if corrections is not None else None,
    )
    searches = [Search(estimator, budget, plan) for plan in _on_gpus(base, machine, budget)]
    found = _choose(searches, wish, contexts, parallels, has_gpu=has_gpu)
    if found is None:
        search = searches[-1]
        smallest = structs.replace(
            with_context(search.base, contexts[-1]),
            parallel=parallels[-1],
            gpu_layers=wish.gpu_layers or 0,
        )
        if not wish.force:
            raise _does_not_fit(search, smallest, budget, machine)
        found = Found(smallest, search.estimate(smallest))
        warnings.append("Does not fit by the planner's figures; loaded because it was forced.")
    return Plan(
        launch=found.plan,
        memory=found.estimate,
        speed=estimate_speed(facts, found.plan, machine.gpus, machine.cpu, device_table),
        reason=_reason(facts, found, machine, budget),
        warnings=tuple(warnings),
    )


def _base_plan(facts: ModelFacts, wish: Wish, warnings: list[str], *, has_gpu: bool) -> LaunchPlan:
    """What is not searched for. A wish that cannot be kept is replaced and warned about."""
    kv_type = wish.kv_type or "f16"
    block = tensor_type(kv_type).block_elements
    if block > 1 and any(
        width % block for layer in range(facts.n_layer) for width in cache_widths(facts, layer)
    ):
        warnings.append(f"This model's heads do not divide into blocks of {kv_type}; the cache stays f16.")
        kv_type = "f16"
    return LaunchPlan(
        model_path="",
        context_length=MINIMUM_CONTEXT,
        kv_type_k=kv_type,
        kv_type_v=kv_type,
        # llama.cpp refuses quantised values without it
        flash_attention="on" if tensor_type(kv_type).block_elements > 1 else "auto",
        threads=wish.threads,
        batch_threads=wish.batch_threads,
        ubatch=wish.ubatch or (DEFAULT_UBATCH if has_gpu else CPU_UBATCH),
        embedding=_embeds(facts, wish),
    )


def _embeds(facts: ModelFacts, wish: Wish) -> bool:
    return wish.embedding or facts.capabilities == ("embedding",)


def _candidates(facts: ModelFacts, wish: Wish, warnings: list[str]) -> tuple[list[int], tuple[int, ...]]:
    """Contexts from generous to modest, and numbers of sequences likewise."""
    appetite = EMBEDDING_APPETITE if _embeds(facts, wish) else APPETITES[wish.profile]
    trained = facts.trained_context_length
    parallels = (wish.parallel,) if wish.parallel else appetite.parallels
    if wish.context_length is not None:
        return [_within_training(wish.context_length, trained, warnings, force=wish.force)], parallels
    context = min(appetite.context, trained or appetite.context)
    least = min(appetite.least, context)
    if trained is not None and wish.profile is Profile.AGENT and trained < appetite.least:
        warnings.append(f"Agents need 32k tokens of context; this model was trained on {trained}.")
    return halved(context, least), parallels


def _within_training(asked: int, trained: int | None, warnings: list[str], *, force: bool) -> int:
    """A longer context than the model was trained on costs its memory and brings nothing; only force asks for it."""
    if trained is None or asked <= trained:
        return asked
    text = f"The model was trained on {trained} tokens of context; past that its answers degrade."
    warnings.append(
        text if force else f"{text} It gets {trained} instead of the {asked} that were asked for."
    )
    return asked if force else trained


def halved(largest: int, least: int) -> list[int]:
    """``largest``, a half, a quarter … down to ``least``."""
    found = [largest]
    while found[-1] // 2 >= least:
        found.append(found[-1] // 2)
    return found


def _on_gpus(base: LaunchPlan, machine: Machine, budget: Budget) -> list[LaunchPlan]:
    """The base plan for each way to use the GPUs: the roomiest alone (no traffic between cards), then all together.

    The split always names every GPU of the machine, since llama.cpp spreads over all of them when it is not told.
    """
    rooms = [float(budget.of(gpu.id)) for gpu in machine.gpus]
    usable = sum(room > 0 for room in rooms)
    if usable == 0:
        return [base]
    if len(rooms) == 1:
        return [base]
    best = rooms.index(max(rooms))
    alone = tuple(1.0 if index == best else 0.0 for index in range(len(rooms)))
    plans = [structs.replace(base, tensor_split=alone, main_gpu=best)]
    if usable > 1:
        plans.append(structs.replace(base, tensor_split=tuple(rooms), main_gpu=best))
    return plans


def _choose(
    searches: Sequence[Search],
    wish: Wish,
    contexts: Sequence[int],
    parallels: Sequence[int],
    *,
    has_gpu: bool,
) -> Found | None:
    """Whole on as few GPUs as will do; else in part on as many as there are."""
    if not has_gpu:
        return searches[0].whole(contexts, parallels, 0)
    layers = searches[0].total_layers if wish.gpu_layers is None else wish.gpu_layers
    for search in searches:
        found = search.whole(contexts, parallels, layers)
        if found is not None:
            return found
    if wish.gpu_layers is not None:
        return None
    return searches[-1].partial(contexts[min(1, len(contexts) - 1)], parallels[-1]) or searches[-1].partial(
        contexts[-1], parallels[-1]
    )


def _reason(facts: ModelFacts, found: Found, machine: Machine, budget: Budget) -> str:
    plan, estimate = found.plan, found.estimate
    used = [gpu for gpu in machine.gpus if estimate.on(gpu.id).weights]
    where = ", ".join(gpu.name for gpu in used)
    if plan.gpu_layers <= 0 or not used:
        placed = "Runs on the CPU"
    elif plan.cpu_moe_layers:
        placed = f"Experts of {plan.cpu_moe_layers} of {facts.n_layer} layers on the CPU, the rest on {where}"
    elif plan.gpu_layers < facts.total_layers:
        placed = f"{plan.gpu_layers} of {facts.total_layers} layers on {where}, the rest on the CPU"
    else:
        placed = f"All {facts.total_layers} layers on {where}"
    sequences = f" × {plan.parallel}" if plan.parallel > 1 else ""
    main = used[0].id if used else CPU_ID
    spare = max(0, budget.of(main) - estimate.on(main).total)
    return (
        f"{placed}: {format_bytes(estimate.weights_bytes)} of weights, {format_context(plan.context_length)} context"
        f"{sequences} in {format_bytes(estimate.kv_bytes)}, {format_bytes(spare)} to spare."
    )


def _does_not_fit(search: Search, plan: LaunchPlan, budget: Budget, machine: Machine) -> DoesNotFit:
    estimate = search.estimate(plan)
    shortage = budget.shortage(estimate)
    assert shortage is not None, "asked why something does not fit that fits"
    device = next((d for d in machine.devices if d.id == shortage.device_id), machine.cpu)
    ways = ways_out(search, plan, budget, machine)
    return DoesNotFit(
        f"The model needs {format_bytes(shortage.needed_bytes)} on {device.name}, and "
        f"{format_bytes(shortage.available_bytes)} can be used there now.",
        hint=" ".join(ways) or "Take a smaller model or quantisation.",
        details={
            "needed_bytes": shortage.needed_bytes,
            "available_bytes": shortage.available_bytes,
            "device": shortage.device_id,
            "ways_out": list(ways),
        },
    )
