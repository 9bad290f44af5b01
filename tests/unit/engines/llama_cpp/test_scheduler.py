from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from localllm.core.errors import GenerationFailed
from localllm.core.generation import (
    Finished,
    FinishReason,
    GenerationRequest,
    Progress,
    Sampling,
    Started,
    TextDelta,
    Tier,
    TokenPrompt,
    Usage,
)
from localllm.engines.llama_cpp.answer import Answer, Job
from localllm.engines.llama_cpp.pool import MemoryKind
from localllm.engines.llama_cpp.prediction import Predictor
from localllm.engines.llama_cpp.sampling import Sampler, resolve
from localllm.engines.llama_cpp.scheduler import Failure, Output, Scheduler
from tests.support.fake_context import END, FakeContext, continuation


class Vocabulary:
    """Tokens are spelled as ``<number>``."""

    def piece(self, token: int, *, special: bool) -> bytes:
        return f"<{token}>".encode()


class Bench:
    """A scheduler on a fake context, a clock that ticks, and everything that was said, by job."""

    def __init__(
        self, *, parallel: int = 4, kind: MemoryKind = MemoryKind.FULL, window: int = 0, **context: int
    ) -> None:
        self.context = FakeContext(kind=kind, window=window, **context)
        self.now = 0.0
        self.context.on_decode = self.spend
        self.scheduler = Scheduler(
            self.context, parallel=parallel, kind=kind, window=window, clock=lambda: self.now
        )
        self.said: dict[int, list[object]] = {}
        self._numbers = 0

    def submit(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        n: int = 1,
        tier: Tier = Tier.DEFAULT,
        prediction: Sequence[int] | None = None,
        cache_prompt: bool = True,
    ) -> int:
        self._numbers += 1
        request = GenerationRequest(
            request_id=str(self._numbers),
            prompt=TokenPrompt(tuple(prompt)),
            n=n,
            tier=tier,
            cache_prompt=cache_prompt,
            prediction=None if prediction is None else spelled(prediction),
        )
        job = Job(self._numbers, request, prompt, context_length=1024, arrived=self.now)
        for choice in range(n):
            answer = Answer(
                job,
                choice,
                np.array(prompt, np.int32),
                limit=len(prompt) + count,
                reserve=len(prompt) + count,
                sampler=Sampler(resolve(Sampling(temperature=0))),
                vocabulary=Vocabulary(),
                end_tokens=frozenset({END}),
                predictor=Predictor(prediction, list(prompt)) if prediction is not None else None,
            )
            job.answers.append(answer)
        self.said[job.number] = []
        self.scheduler.submit(job)
        return job.number

    def spend(self, tokens: int) -> None:
        self.now += 0.005 + 0.001 * tokens

    def step(self) -> list[Output]:
        output = self.scheduler.step()
        for number, event in output:
            self.said[number].append(event)
        return output

    def run(self, limit: int = 2000) -> None:
        while self.scheduler.busy:
            self.step()
            limit -= 1
            assert limit, "the scheduler does not come to an end"

    def text(self, number: int, choice: int = 0) -> str:
        return "".join(e.text for e in self.said[number] if isinstance(e, TextDelta) and e.choice == choice)

    def find(self, number: int, kind: type) -> list[object]:
        return [event for event in self.said[number] if isinstance(event, kind)]

    def usage(self, number: int) -> Usage:
        (usage,) = self.find(number, Usage)
        assert isinstance(usage, Usage)
        assert self.said[number][-1] is usage
        return usage

    def settled(self) -> None:
        """Nothing runs, and the ledger, the pool and the context agree on what is still held."""
        assert not self.scheduler.busy
        assert self.scheduler.pool.live() == []
        assert self.scheduler.pool.cells.used == self.context.used()
        idle = set(self.scheduler.pool.idle())
        assert {number for number, held in enumerate(self.context.held) if held} == idle


def spelled(tokens: Sequence[int]) -> str:
    return "".join(f"<{token}>" for token in tokens)


def prompt(seed: int, length: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(1, 64) for _ in range(length)]


KINDS = [
    pytest.param({"kind": MemoryKind.FULL}, id="full"),
    pytest.param({"kind": MemoryKind.WINDOW, "window": 16}, id="window"),
    pytest.param({"kind": MemoryKind.EXACT}, id="exact"),
]


@pytest.mark.parametrize("memory", KINDS)
def test_many_at_once_say_what_each_says_alone(memory: dict[str, Any]) -> None:
    bench = Bench(parallel=4, **memory)
    prompts = [prompt(seed, 5 + 17 * seed) for seed in range(9)]
    numbers = [bench.submit(p, 12 + index) for index, p in enumerate(prompts)]
    bench.run()
    for index, number in enumerate(numbers):
        assert bench.text(number) == spelled(continuation(prompts[index], 12 + index))
        assert bench.find(number, Finished) == [Finished(FinishReason.LENGTH)]
        assert bench.usage(number).completion_tokens == 12 + index
    bench.settled()


def test_started_comes_once_and_first_then_progress_then_text() -> None:
    bench = Bench(batch=64)
    number = bench.submit(prompt(1, 200), 3)
    bench.run()
    kinds = [type(event) for event in bench.said[number]]
    assert kinds[0] is Started
    assert kinds.count(Started) == 1
    assert kinds[-2:] == [Finished, Usage]
    progress = [event.processed for event in bench.find(number, Progress) if isinstance(event, Progress)]
    assert progress == sorted(progress)
    assert progress[-1] < 200


@pytest.mark.parametrize("memory", KINDS)
def test_a_shared_prefix_is_computed_once(memory: dict[str, Any]) -> None:
    bench = Bench(parallel=8, sequences=10, **memory)
    shared = prompt(1, 300)
    tails = [[50 + index, *prompt(100 + index, 9)] for index in range(8)]
    numbers = [bench.submit(shared + tail, 4) for tail in tails]
    bench.run()
    for tail, number in zip(tails, numbers, strict=True):
        assert bench.text(number) == spelled(continuation(shared + tail, 4))
    assert bench.scheduler.counters.prefilled_tokens <= 1.1 * (300 + 8 * 10)
    cached = [bench.usage(number).cached_tokens for number in numbers]
    assert cached == [0, *[300] * 7]
    bench.settled()


def test_a_prompt_seen_before_is_not_computed_again() -> None:
    bench = Bench()
    first = bench.submit(prompt(1, 200), 5)
    bench.run()
    again = bench.submit(prompt(1, 200), 5)
    bench.run()
    assert bench.usage(again).cached_tokens == 199
    assert bench.text(again) == bench.text(first)


@pytest.mark.parametrize("memory", KINDS)
def test_a_conversation_goes_on_from_its_last_turn(memory: dict[str, Any]) -> None:
    bench = Bench(**memory)
    turn = prompt(1, 100)
    first = bench.submit(turn, 6)
    bench.run()
    longer = [*turn, *continuation(turn, 6), *prompt(2, 20)]
    second = bench.submit(longer, 6)
    bench.run()
    assert bench.usage(second).cached_tokens == 105  # the last token of the answer was never computed
    assert bench.text(second) == spelled(continuation(longer, 6))
    assert bench.usage(first).cached_tokens == 0
    bench.settled()


def test_an_exact_memory_knows_a_prompt_again_up_to_its_checkpoint() -> None:
    bench = Bench(kind=MemoryKind.EXACT)
    first = bench.submit(prompt(1, 200), 5)
    bench.run()
    again = bench.submit(prompt(1, 200), 5)
    bench.run()
    assert bench.usage(again).cached_tokens == 192
    assert bench.text(again) == bench.text(first)
    bench.settled()


def test_an_exact_memory_is_never_cut() -> None:
    bench = Bench(kind=MemoryKind.EXACT)
    bench.submit(prompt(1, 100), 6)
    bench.run()
    other = [*prompt(1, 60), *prompt(2, 40)]
    number = bench.submit(other, 6)
    bench.run()
    assert bench.usage(number).cached_tokens == 0
    assert bench.text(number) == spelled(continuation(other, 6))


def test_a_window_that_moved_on_is_not_reused() -> None:
    bench = Bench(kind=MemoryKind.WINDOW, window=16)
    bench.submit(prompt(1, 200), 6)
    bench.run()
    other = [*prompt(1, 60), *prompt(2, 40)]
    number = bench.submit(other, 6)
    bench.run()
    assert bench.usage(number).cached_tokens == 0
    assert bench.text(number) == spelled(continuation(other, 6))


def test_without_cache_prompt_nothing_is_reused_and_nothing_is_left() -> None:
    bench = Bench()
    for _ in range(2):
        number = bench.submit(prompt(1, 100), 4, cache_prompt=False)
        bench.run()
        assert bench.usage(number).cached_tokens == 0
    assert bench.context.used() == 0


def test_choices_are_forked_after_one_prefill() -> None:
    bench = Bench(parallel=4)
    number = bench.submit(prompt(1, 200), 5, n=3)
    bench.run()
    expected = spelled(continuation(prompt(1, 200), 5))
    assert [bench.text(number, choice) for choice in range(3)] == [expected] * 3
    assert len(bench.find(number, Started)) == 1
    assert sorted(e.choice for e in bench.find(number, Finished) if isinstance(e, Finished)) == [0, 1, 2]
    usage = bench.usage(number)
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (200, 0, 15)
    assert bench.scheduler.counters.prefilled_tokens < 210


@pytest.mark.parametrize("phase", ["waiting", "prefill", "decode"])
def test_cancelling_frees_the_place_within_one_step(phase: str) -> None:
    bench = Bench(parallel=1, batch=64)
    if phase == "waiting":
        bench.submit(prompt(9, 10), 30)
        bench.step()
    number = bench.submit(prompt(1, 200), 30)
    for _ in range({"waiting": 0, "prefill": 1, "decode": 12}[phase]):
        bench.step()
    said = len(bench.said[number])
    bench.scheduler.cancel(number)
    other = bench.submit(prompt(2, 10), 3)
    bench.run()
    assert len(bench.said[number]) == said
    assert bench.text(other) == spelled(continuation(prompt(2, 10), 3))
    bench.settled()


def test_prefill_is_chunked_while_others_decode() -> None:
    bench = Bench()
    number = bench.submit(prompt(1, 10), 40)
    for _ in range(4):
        bench.step()
    before = len(bench.find(number, TextDelta))
    bench.submit(prompt(2, 400), 2)
    for _ in range(5):
        bench.step()
    assert len(bench.find(number, TextDelta)) == before + 5
    assert max(len(step) for step in bench.context.steps[-5:]) < 400


def test_priority_goes_first_and_flex_last() -> None:
    bench = Bench(parallel=1)
    running = bench.submit(prompt(9, 10), 5)
    bench.step()
    numbers = {
        tier: bench.submit(prompt(3, 10), 2, tier=tier) for tier in (Tier.FLEX, Tier.DEFAULT, Tier.PRIORITY)
    }
    order: list[int] = []
    while bench.scheduler.busy:
        order += [number for number, event in bench.step() if isinstance(event, Usage)]
    assert order == [running, numbers[Tier.PRIORITY], numbers[Tier.DEFAULT], numbers[Tier.FLEX]]


def test_waiting_lifts_a_flex_request_over_newer_ones() -> None:
    bench = Bench(parallel=1)
    bench.submit(prompt(9, 10), 5)
    bench.step()
    flex = bench.submit(prompt(1, 10), 2, tier=Tier.FLEX)
    bench.now += 45
    default = bench.submit(prompt(2, 10), 2)
    order: list[int] = []
    while bench.scheduler.busy:
        order += [number for number, event in bench.step() if isinstance(event, Usage)]
    assert order[1:] == [flex, default]


@pytest.mark.parametrize("memory", KINDS)
def test_flex_is_parked_for_others_and_loses_nothing(memory: dict[str, Any]) -> None:
    bench = Bench(parallel=1, **memory)
    flex = bench.submit(prompt(1, 50), 20, tier=Tier.FLEX)
    for _ in range(8):
        bench.step()
    default = bench.submit(prompt(2, 10), 3)
    bench.step()
    assert bench.find(default, Started)
    bench.run()
    assert bench.text(default) == spelled(continuation(prompt(2, 10), 3))
    assert bench.text(flex) == spelled(continuation(prompt(1, 50), 20))
    assert len(bench.find(flex, Started)) == 1
    assert bench.scheduler.counters.preemptions == 1
    assert bench.scheduler.counters.prefilled_tokens <= 70  # what the parked answer had computed was kept
    bench.settled()


def test_default_is_never_parked() -> None:
    bench = Bench(parallel=1)
    bench.submit(prompt(1, 10), 10)
    bench.step()
    urgent = bench.submit(prompt(2, 10), 3, tier=Tier.PRIORITY)
    bench.step()
    assert not bench.find(urgent, Started)
    bench.run()
    assert bench.scheduler.counters.preemptions == 0


def test_room_is_reserved_so_that_nothing_overflows_midway() -> None:
    bench = Bench(parallel=4, cells=200)
    numbers = [bench.submit(prompt(seed, 40), 40) for seed in range(4)]
    bench.step()
    assert bench.scheduler.running == 2
    bench.run()
    assert bench.scheduler.counters.preemptions == 0
    for seed, number in enumerate(numbers):
        assert bench.text(number) == spelled(continuation(prompt(seed, 40), 40))
    bench.settled()


def test_idle_prefixes_make_way_for_new_prompts() -> None:
    bench = Bench(cells=300)
    for seed in range(6):
        number = bench.submit(prompt(seed, 100), 10)
        bench.run()
        assert bench.text(number) == spelled(continuation(prompt(seed, 100), 10))
    assert bench.context.used() <= 300
    bench.settled()


def test_a_step_without_room_is_tried_again_and_costs_nobody() -> None:
    bench = Bench(parallel=2)
    numbers = [bench.submit(prompt(seed, 20), 10) for seed in range(2)]
    bench.step()
    bench.context.statuses = [1, 1, 0]
    bench.run()
    for seed, number in enumerate(numbers):
        assert bench.text(number) == spelled(continuation(prompt(seed, 20), 10))
    bench.settled()


def test_without_room_the_last_to_come_wait_and_the_first_goes_on() -> None:
    bench = Bench(parallel=3)
    numbers = [bench.submit(prompt(seed, 20), 10) for seed in range(3)]
    bench.step()
    bench.context.statuses = [1] * 3
    for _ in range(4):
        bench.step()
    assert (bench.scheduler.running, bench.scheduler.waiting) == (1, 2)
    bench.run()
    for seed, number in enumerate(numbers):
        assert bench.text(number) == spelled(continuation(prompt(seed, 20), 10))
    bench.settled()


def test_an_answer_that_finds_no_room_even_alone_fails() -> None:
    bench = Bench(parallel=3)
    number = bench.submit(prompt(1, 20), 10)
    bench.step()
    bench.context.statuses = [1] * 3
    bench.run()
    assert bench.find(number, Failure)
    bench.settled()


@pytest.mark.parametrize("status", [2, -1, -3])
def test_a_failed_step_is_repeated_one_by_one(status: int) -> None:
    bench = Bench(parallel=3)
    numbers = [bench.submit(prompt(seed, 20), 10) for seed in range(3)]
    for _ in range(3):
        bench.step()
    bench.context.statuses = [status]
    bench.run()
    for seed, number in enumerate(numbers):
        assert bench.text(number) == spelled(continuation(prompt(seed, 20), 10))
    bench.settled()


def test_one_request_that_cannot_be_computed_fails_alone() -> None:
    bench = Bench(parallel=3)
    bench.context.poison = {63}
    clean = [[1 + token % 20 for token in prompt(seed, 30)] for seed in range(2)]
    good = [bench.submit(p, 1) for p in clean]
    bad = bench.submit([*clean[0][:10], 63, 5], 1)
    bench.run()
    (failure,) = bench.find(bad, Failure)
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, GenerationFailed)
    for p, number in zip(clean, good, strict=True):
        assert bench.text(number) == spelled(continuation(p, 1))
    bench.settled()


def test_logits_that_are_not_numbers_fail_one_request() -> None:
    bench = Bench(parallel=2)
    good, bad = bench.submit(prompt(1, 10), 5), bench.submit(prompt(2, 10), 5)
    bench.step()
    logits = bench.context.logits
    spoiled = {"done": False}

    def poisoned(rows: int) -> np.ndarray:
        view = logits(rows)
        if not spoiled["done"]:
            view[1] = np.nan
            spoiled["done"] = True
        return view

    bench.context.logits = poisoned  # type: ignore[method-assign]
    bench.run()
    (failure,) = bench.find(bad, Failure)
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, GenerationFailed)
    assert bench.text(good) == spelled(continuation(prompt(1, 10), 5))
    bench.settled()


@pytest.mark.parametrize("memory", KINDS[:2])
def test_a_prediction_changes_the_steps_but_not_the_text(memory: dict[str, Any]) -> None:
    bench = Bench(**memory)
    expected = continuation(prompt(1, 30), 120)
    edited = [*expected[:40], 7, 7, *expected[40:80], *expected[83:]]
    number = bench.submit(prompt(1, 30), 120, prediction=edited)
    bench.run()
    assert bench.text(number) == spelled(expected)
    usage = bench.usage(number)
    assert usage.accepted_prediction_tokens > 80
    assert usage.rejected_prediction_tokens > 0
    assert usage.completion_tokens == 120
    assert bench.scheduler.counters.steps < 40
    bench.settled()


def test_a_useless_prediction_is_soon_given_up() -> None:
    bench = Bench()
    number = bench.submit(prompt(1, 30), 120, prediction=prompt(99, 200))
    bench.run()
    assert bench.text(number) == spelled(continuation(prompt(1, 30), 120))
    assert bench.usage(number).rejected_prediction_tokens < 40


@pytest.mark.parametrize("memory", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_500_random_requests_leave_nothing_behind(memory: dict[str, Any], seed: int) -> None:
    source = random.Random(seed)
    bench = Bench(parallel=4, sequences=7, cells=1500, batch=128, **memory)
    stems = [prompt(1000 + index, source.randrange(5, 150)) for index in range(6)]
    wanted: dict[int, str] = {}
    open_numbers: list[int] = []
    for _ in range(500):
        tokens = [*source.choice(stems), *prompt(source.randrange(10_000), source.randrange(0, 30))]
        count = source.randrange(1, 25)
        tier = source.choice(list(Tier))
        number = bench.submit(tokens, count, tier=tier)
        wanted[number] = spelled(continuation(tokens, count))
        open_numbers.append(number)
        for _ in range(source.randrange(0, 12)):
            if source.random() < 0.02:
                bench.context.statuses.append(source.choice([1, 2, -3]))
            bench.step()
        if source.random() < 0.3:
            cancelled = source.choice(open_numbers)
            bench.scheduler.cancel(cancelled)
            wanted.pop(cancelled, None)
    bench.run(20_000)
    failed = 0
    for number, text in wanted.items():
        if bench.find(number, Failure):
            failed += 1
        else:
            assert bench.text(number) == text
    assert failed <= 10
    bench.settled()
