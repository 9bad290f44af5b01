"""Finding a launch plan that fits: how many layers on the GPUs, how long a context, how many sequences.

Every question is answered by asking the one estimator, in an order that gives up the least useful thing first: spare
sequences, then context beyond what the profile needs, then speed (layers on the CPU). A wish is never overruled.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, structs

from localllm.core.budget import Budget
from localllm.core.facts import ModelFacts
from localllm.core.launch import LaunchPlan
from localllm.core.memory import Estimator, MemoryEstimate

CONTEXT_STEP: Final = 256
MINIMUM_CONTEXT: Final = 2_048

MODEST_SHARE_OF_SPARE: Final = 0.6
"""A context that nobody asked for, and its scratch, take at most this part of what the weights leave."""


class Found(Struct, frozen=True):
    plan: LaunchPlan
    estimate: MemoryEstimate


class Search:
    """All questions about one model within one budget. ``base`` carries what is not searched for."""

    def __init__(self, estimator: Estimator, budget: Budget, base: LaunchPlan) -> None:
        self._estimator = estimator
        self._budget = budget
        self.base = base

    @property
    def facts(self) -> ModelFacts:
        return self._estimator.facts

    @property
    def total_layers(self) -> int:
        return self._estimator.facts.total_layers

    def estimate(self, plan: LaunchPlan) -> MemoryEstimate:
        return self._estimator.estimate(plan)

    def try_plan(self, plan: LaunchPlan) -> Found | None:
        estimate = self.estimate(plan)
        return Found(plan, estimate) if self._budget.fits(estimate) else None

    def whole(self, contexts: Sequence[int], parallels: Sequence[int], gpu_layers: int) -> Found | None:
        """The most generous (context, parallel) with this many layers on the GPUs.

        Where there is a choice, the cache may not eat all that the weights leave; the least generous may.
        """
        candidates = list(itertools.product(contexts, parallels))
        for context, parallel in candidates:
            plan = structs.replace(with_context(self.base, context), parallel=parallel, gpu_layers=gpu_layers)
            found = self.try_plan(plan)
            if found is not None and (
                (context, parallel) == candidates[-1] or self._is_modest(found.estimate)
            ):
                return found
        return None

    def partial(self, context: int, parallel: int) -> Found | None:
        """Some layers on the CPU: of a mixture of experts its experts, as few as must be; else whole layers."""
        plan = structs.replace(with_context(self.base, context), parallel=parallel)
        if self._estimator.facts.is_moe:
            full = structs.replace(plan, gpu_layers=self.total_layers)
            layers = self._estimator.facts.n_layer
            least = _smallest(
                lambda n: self.try_plan(structs.replace(full, cpu_moe_layers=n)) is not None, 1, layers
            )
            if least is not None:
                return self.try_plan(structs.replace(full, cpu_moe_layers=least))
        most = _largest(
            lambda n: self.try_plan(structs.replace(plan, gpu_layers=n)) is not None, 0, self.total_layers - 1
        )
        return None if most is None else self.try_plan(structs.replace(plan, gpu_layers=most))

    def longest_context(self, plan: LaunchPlan, limit: int) -> int | None:
        """The longest context of this plan that fits, up to ``limit``, in steps of 256; None if not even one step."""
        steps = _largest(
            lambda n: self.try_plan(with_context(plan, min(n * CONTEXT_STEP, limit))) is not None,
            1,
            -(-limit // CONTEXT_STEP),
        )
        return None if steps is None else min(steps * CONTEXT_STEP, limit)

    def _is_modest(self, estimate: MemoryEstimate) -> bool:
        for device in estimate.devices:
            spare = self._budget.of(device.device_id) - device.weights
            if device.kv + device.compute > MODEST_SHARE_OF_SPARE * max(spare, 0):
                return False
        return True


def with_context(plan: LaunchPlan, context_length: int) -> LaunchPlan:
    """The plan for another context. An embedding is computed in one batch, so its batch is its context."""
    if plan.embedding:
        return structs.replace(
            plan, context_length=context_length, batch=context_length, ubatch=context_length
        )
    return structs.replace(plan, context_length=context_length)


def _largest(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest n in low…high for which a condition holds that fails from some n on."""
    if low > high or not holds(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _smallest(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """The smallest n in low…high for which a condition holds that holds from some n on."""
    if low > high or not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
