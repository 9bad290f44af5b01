"""Searching for what fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localllm.core.budget import budget_of
from localllm.core.launch import LaunchPlan
from localllm.core.memory import Estimator
from localllm.core.search import CONTEXT_STEP, Search, with_context
from tests.support.known_facts import facts_of
from tests.support.plain_machine import machine

BASE = LaunchPlan(model_path="", context_length=4096, gpu_layers=33)


def search(gib: float, *, ram: float = 64, model: str = "Llama-3.1-8B") -> Search:
    where = machine(ram, gib)
    return Search(Estimator(facts_of(model), where.gpus), budget_of(where), BASE)


@given(st.floats(5.5, 30))
def test_the_longest_context_fits_and_the_next_step_does_not(gib: float) -> None:
    found = search(gib)
    longest = found.longest_context(BASE, 131072)
    if longest is None:
        assert found.try_plan(with_context(BASE, CONTEXT_STEP)) is None
        return
    assert found.try_plan(with_context(BASE, longest)) is not None
    assert longest == 131072 or found.try_plan(with_context(BASE, longest + CONTEXT_STEP)) is None


@given(st.floats(1, 8))
def test_as_many_layers_as_fit(gib: float) -> None:
    found = search(gib).partial(8192, 1)
    assert found is not None
    layers = found.plan.gpu_layers
    more = LaunchPlan(model_path="", context_length=8192, gpu_layers=layers + 1)
    assert layers == 32 or search(gib).try_plan(more) is None


def test_the_most_generous_comes_first() -> None:
    found = search(80).whole([8192, 4096], [4, 1], 33)
    assert found is not None
    assert (found.plan.context_length, found.plan.parallel) == (8192, 4)
    smaller = search(6.5).whole([65536, 8192, 4096], [4, 1], 33)
    assert smaller is not None
    assert (smaller.plan.context_length, smaller.plan.parallel) == (4096, 1)


def test_nothing_fits() -> None:
    assert search(0.5, ram=1).whole([4096], [1], 33) is None
    assert search(0.5, ram=1).partial(4096, 1) is None


def test_an_embedding_takes_its_batch_along() -> None:
    plan = LaunchPlan(model_path="", context_length=1, embedding=True)
    moved = with_context(plan, 777)
    assert (moved.context_length, moved.batch, moved.ubatch) == (777, 777, 777)
