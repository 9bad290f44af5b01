"""Finding the thread counts and the ubatch that are fastest on this machine now, in seconds, by trying them.

Rounds are interleaved (every candidate once, then again), so that a machine that others use too disturbs all candidates
alike; medians decide. llama.cpp's threads wait for each other at every operation: on a shared machine one thread too
many costs far more than one too few, which is why the fewest threads within ``NEAR`` of the best win.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
from msgspec.structs import replace

from localllm.core.errors import GenerationFailed
from localllm.core.launch import LaunchPlan
from localllm.engines.llama_cpp import llama
from localllm.engines.llama_cpp.lab_request import Advance, Trial, TuneRequest, TuneResult

NEAR = 0.97
DECODE_TOKENS = 8
PREFILL_TOKENS = 256
UBATCHES = (128, 256, 512, 1024)


def thread_candidates(processors: int) -> tuple[int, ...]:
    """1, the powers of two below ``processors``, three quarters of it, and the last two: few, but around the knee."""
    wanted = {1, processors, processors - 1, processors * 3 // 4, *(2**n for n in range(12))}
    return tuple(sorted(n for n in wanted if 1 <= n <= processors))


def pick(trials: Sequence[Trial]) -> int:
    """The smallest value whose median speed is within ``NEAR`` of the fastest."""
    best = max(t.tokens_per_second for t in trials)
    return min(t.value for t in trials if t.tokens_per_second >= NEAR * best)


def tune(request: TuneRequest, tell: Callable[[Advance], None]) -> TuneResult:
    """Try threads for decoding, threads for prefill, then ubatch, each with the best found before it."""
    with ExitStack() as stack:
        model = llama.Model(request.plan)
        stack.callback(model.free)
        candidates = request.threads or thread_candidates(llama.default_threads())
        total = request.rounds * (2 * len(candidates) + len(UBATCHES))
        steps = _Steps(tell, total)
        context = _context(model, request.plan)
        try:
            decode = _rounds(
                candidates, request.rounds, lambda n: _decode_speed(context, n), steps.next("decode threads")
            )
            prefill = _rounds(
                candidates,
                request.rounds,
                lambda n: _prefill_speed(context, n),
                steps.next("prefill threads"),
            )
        finally:
            context.free()
        threads, batch_threads = pick(decode), pick(prefill)
        plan = replace(request.plan, threads=threads, batch_threads=batch_threads)
        ubatch = _rounds(
            tuple(u for u in UBATCHES if u <= request.plan.batch),
            request.rounds,
            lambda u: _ubatch_speed(model, replace(plan, ubatch=u), batch_threads),
            steps.next("ubatch"),
        )
        return TuneResult(
            threads=threads,
            batch_threads=batch_threads,
            ubatch=pick(ubatch),
            decode=decode,
            prefill=prefill,
            ubatches=ubatch,
            engine_version=llama.version(),
        )


class _Steps:
    """Counts trials over all stages, for one progress figure."""

    def __init__(self, tell: Callable[[Advance], None], total: int) -> None:
        self._tell = tell
        self._total = total
        self._done = 0

    def next(self, label: str) -> Callable[[], None]:
        def advance() -> None:
            self._tell(Advance(self._done, self._total, label))
            self._done += 1

        return advance


def _rounds(
    candidates: Sequence[int], rounds: int, measure: Callable[[int], float], advance: Callable[[], None]
) -> tuple[Trial, ...]:
    """Median speed of each candidate; one less than half as fast as the best is not tried again."""
    found: dict[int, list[float]] = {value: [] for value in candidates}
    for _ in range(rounds):
        best = max((speeds[-1] for speeds in found.values() if speeds), default=0.0)
        for value, speeds in found.items():
            advance()
            if not speeds or 2 * speeds[-1] >= best:
                speeds.append(measure(value))
    return tuple(Trial(value, statistics.median(speeds)) for value, speeds in found.items())


def _context(model: llama.Model, plan: LaunchPlan) -> llama.Context:
    return llama.Context(model, plan, sequences=1, cells=2 * PREFILL_TOKENS, max_outputs=1)


def _decode_speed(context: llama.Context, threads: int) -> float:
    context.set_threads(threads, threads)
    context.clear()
    _feed(context, PREFILL_TOKENS // 8, PREFILL_TOKENS, 0)
    begun = time.perf_counter()
    _feed(context, DECODE_TOKENS, 1, PREFILL_TOKENS // 8)
    return DECODE_TOKENS / (time.perf_counter() - begun)


def _prefill_speed(context: llama.Context, threads: int) -> float:
    context.set_threads(threads, threads)
    context.clear()
    begun = time.perf_counter()
    _feed(context, PREFILL_TOKENS, PREFILL_TOKENS, 0)
    return PREFILL_TOKENS / (time.perf_counter() - begun)


def _ubatch_speed(model: llama.Model, plan: LaunchPlan, threads: int) -> float:
    context = _context(model, plan)
    try:
        return _prefill_speed(context, threads)
    finally:
        context.free()


def _feed(context: llama.Context, count: int, step: int, position: int) -> None:
    tokens = np.arange(count, dtype=np.int32) % max(1, context.model.n_vocab)
    for start in range(0, count, step):
        context.batch.clear()
        context.batch.put(0, tokens[start : start + step], position + start, 1)
        status = context.decode()
        if status != 0:
            raise GenerationFailed(f"llama.cpp could not decode (status {status}).")
