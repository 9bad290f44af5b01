"""Continuous batching: who runs, what each step computes, and what happens when a step fails.

``Scheduler`` owns every open job and drives one context. A step takes what waits (by tier, lifted by waiting), fills
one batch (newest tokens and drafts first, then prompts in measured chunks), computes it, and turns each output row
into events. It knows llama.cpp only as a ``Context``, and time only as what it is given, so all of it runs in tests
without a model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from localllm.core.errors import GenerationFailed, LocalLLMError
from localllm.core.generation import Event, Progress, Tier
from localllm.engines.llama_cpp.answer import Answer, Job
from localllm.engines.llama_cpp.pace import Pace
from localllm.engines.llama_cpp.pool import Memory, MemoryKind, SequencePool, Source, Wait

_NO_ROOM = 1
_DRAFTS_BESIDE_OTHERS = 7
"""Drafts a step may carry for one answer while others decode too."""


class Batch(Protocol):
    capacity: int
    count: int

    def clear(self) -> None: ...
    def put(self, sequence: int, tokens: NDArray[np.int32], position: int, outputs: int) -> None: ...


class Context(Memory, Protocol):
    """What the scheduler asks of llama.cpp; ``llama.Context`` is one."""

    cells: int
    sequences: int
    max_outputs: int

    @property
    def batch(self) -> Batch: ...
    def decode(self) -> int: ...
    def logits(self, rows: int) -> NDArray[np.float32]: ...


class Failure(Struct, frozen=True):
    """A job ended with an error."""

    error: LocalLLMError


Output = tuple[int, Event | Failure]


class Counters(Struct):
    """Totals since loading; seconds are processor-blocking wall time of the worker's one thread."""

    steps: int = 0
    decoded_rows: int = 0
    prefilled_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    preemptions: int = 0
    step_s: float = 0.0
    decode_s: float = 0.0
    sampling_s: float = 0.0


class _Share(Struct):
    """One answer's part of a step: ``count`` tokens from ``answer.computed`` on, then ``drafts``."""

    answer: Answer
    count: int
    outputs: int
    drafts: list[int] = []


class Scheduler:
    """Runs jobs on one context. Not thread-safe: everything happens on the thread that owns the context."""

    def __init__(
        self,
        context: Context,
        *,
        parallel: int,
        kind: MemoryKind,
        window: int = 0,
        can_copy: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._parallel = parallel
        self._ceiling = parallel
        self._clock = clock
        self._pace = Pace()
        self.pool = SequencePool(
            context,
            sequences=context.sequences,
            cells=context.cells,
            kind=kind,
            window=window,
            can_copy=can_copy,
        )
        self.counters = Counters()
        self._jobs: dict[int, Job] = {}
        self._waiting: list[Answer] = []
        self._running: list[Answer] = []
        self._waits: dict[Answer, Wait] = {}
        self._out: list[Output] = []
        self._rows = 0

    # ------------------------------------------------------------ jobs in and out

    @property
    def busy(self) -> bool:
        return bool(self._running or self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def waiting_by_tier(self) -> dict[str, int]:
        return {tier.value: sum(answer.tier is tier for answer in self._waiting) for tier in Tier}

    def submit(self, job: Job) -> None:
        """Queue a job, its answers already built."""
        self._jobs[job.number] = job
        self._waiting.extend(job.answers)
        self.counters.prompt_tokens += job.prompt_tokens

    def cancel(self, number: int) -> None:
        """Forget a job; nothing more is said about it. Unknown numbers are fine (it just ended)."""
        job = self._jobs.pop(number, None)
        if job is not None:
            for answer in job.answers:
                self._leave(answer)

    def fail(self, job: Job, error: LocalLLMError) -> None:
        """End a job with an error."""
        if self._jobs.pop(job.number, None) is not None:
            for answer in job.answers:
                self._leave(answer)
            self._out.append((job.number, Failure(error)))

    # ------------------------------------------------------------ one step

    def step(self) -> list[Output]:
        """Admit, compute one batch, and say what came of it."""
        began = self._clock()
        self._admit(began)
        shares = self._fill(began)
        if shares:
            self._compute(shares)
        self.counters.step_s += self._clock() - began
        return self._take_output()

    def _take_output(self) -> list[Output]:
        out, self._out = self._out, []
        return out

    # ------------------------------------------------------------ admission

    def _admit(self, now: float) -> None:
        if not self._waiting:
            return
        self._waiting.sort(key=lambda answer: answer.rank(now))
        for answer in list(self._waiting):
            tokens = answer.tokens[: answer.length]
            wait = self._waits.pop(answer, None)
            if wait is not None and self.pool.is_coming(wait, tokens):
                self._waits[answer] = wait
                continue
            reuse = answer.job.request.cache_prompt
            source: Source | Wait = self.pool.find(tokens) if reuse else Source(None, 0)
            if isinstance(source, Wait):
                self._waits[answer] = source
            elif not self._start(answer, tokens, source, now):
                return  # there is no room, so there is none for anybody behind it either

    def _start(self, answer: Answer, tokens: NDArray[np.int32], source: Source, now: float) -> bool:
        """Let ``answer`` run, if it finds a place, or one whose place it may take."""
        if len(self._running) >= self._ceiling and not self._park_for(answer, now):
            return False
        if not self._has_room(answer, source):
            return False
        taken = self.pool.take(tokens, source, remember=answer.job.request.cache_prompt)
        if taken is None:
            return False
        answer.sequence, answer.computed = taken
        self._waiting.remove(answer)
        self._running.append(answer)
        answer.waited += now - (answer.waited_since if answer.waited_since is not None else now)
        answer.waited_since = None
        started = answer.job.start(answer.computed, now)
        if started is not None:
            self.counters.cached_tokens += answer.computed
            self._out.append((answer.job.number, started))
        return True

    def _has_room(self, answer: Answer, source: Source) -> bool:
        """Whether what runs can still grow to its reserve with ``answer`` beside it."""
        growth = sum(max(0, other.reserve - other.computed) for other in self._running)
        need = answer.reserve - (source.length if source.live else 0)
        return not self._running or self.pool.held_by_live() + growth + need <= self._context.cells

    def _park_for(self, answer: Answer, now: float) -> bool:
        """Park a flex answer that runs, if ``answer`` comes before it."""
        victims = [
            other for other in self._running if other.tier is Tier.FLEX and answer.tier is not Tier.FLEX
        ]
        if not victims:
            return False
        victim = max(victims, key=lambda other: other.rank(now))
        if victim.rank(now) <= answer.rank(now):
            return False
        self._park(victim, now)
        return True

    def _park(self, answer: Answer, now: float) -> None:
        """Back into the queue; what it computed stays as an idle prefix for as long as there is room."""
        self._vacate(answer)
        answer.waited_since = now
        self._waiting.append(answer)
        self.counters.preemptions += 1

    def _vacate(self, answer: Answer) -> None:
        self._running.remove(answer)
        self._ceiling = self._parallel
        if answer.sequence is not None:
            keep = answer.job.request.cache_prompt
            self.pool.release(answer.sequence, answer.tokens[: answer.computed], remember=keep)
        answer.sequence = None
        answer.computed = 0

    def _leave(self, answer: Answer) -> None:
        if answer.sequence is not None:
            self._vacate(answer)
        elif answer in self._waiting:
            self._waiting.remove(answer)
            self._waits.pop(answer, None)

    # ------------------------------------------------------------ filling the batch

    def _fill(self, now: float) -> list[_Share]:
        batch = self._context.batch
        batch.clear()
        decoding = [answer for answer in self._running if answer.decoding]
        shares = [_Share(answer, 1, 1) for answer in decoding]
        self._draft(shares)
        rows = sum(share.outputs for share in shares)
        if len(decoding) < len(self._running):
            budget = self._pace.budget(rows, batch.capacity - rows)
            prompts = [answer for answer in self._running if not answer.decoding]
            for answer in sorted(prompts, key=lambda answer: answer.rank(now)):
                count = self._chunk(answer, budget)
                if count:
                    shares.append(_Share(answer, count, int(count == answer.length - answer.computed)))
                    budget -= count
        for share in shares:
            self._put(share)
        return shares

    def _draft(self, shares: list[_Share]) -> None:
        if len(shares) >= self._parallel > 1:
            return  # with every place taken, each row is better spent on somebody's next token
        free = self._context.max_outputs - self._parallel
        for share in shares:
            answer = share.answer
            if answer.predictor is None:
                continue
            most = min(free, answer.limit - answer.length - 1)
            if len(shares) > 1:
                most = min(most, _DRAFTS_BESIDE_OTHERS)
            share.drafts = answer.predictor.draft(most)
            share.outputs = 1 + len(share.drafts)
            free -= len(share.drafts)

    def _chunk(self, answer: Answer, budget: int) -> int:
        left = answer.length - answer.computed
        if answer.sequence is not None:
            stop = self.pool.next_stop(answer.sequence, answer.computed)
            if stop is not None:
                left = min(left, stop - answer.computed)
        return min(left, budget)

    def _put(self, share: _Share) -> None:
        answer = share.answer
        end = answer.computed + share.count
        if share.drafts:
            # drafts stand behind the newest token until they are checked; what is rejected is overwritten
            answer.tokens[end : end + len(share.drafts)] = share.drafts
            end += len(share.drafts)
        assert answer.sequence is not None
        self._context.batch.put(
            answer.sequence, answer.tokens[answer.computed : end], answer.computed, share.outputs
        )

    # ------------------------------------------------------------ computing it

    def _compute(self, shares: list[_Share]) -> None:
        before = self._clock()
        status = self._context.decode()
        after = self._clock()
        self.counters.decode_s += after - before
        self.counters.steps += 1
        if status:
            self._recover(shares, status)
            return
        rows = self._rows = sum(share.outputs for share in shares if share.count == 1)
        prefilled = sum(share.count for share in shares if share.count > 1)
        self._pace.learn(after - before, rows, prefilled)
        self.counters.prefilled_tokens += prefilled
        self.counters.decoded_rows += rows
        outputs = sum(share.outputs for share in shares)
        logits = self._context.logits(outputs) if outputs else np.empty((0, 0), np.float32)
        row = 0
        for share in shares:
            self._account(share, logits[row : row + share.outputs], after)
            row += share.outputs

    def _account(self, share: _Share, rows: NDArray[np.float32], now: float) -> None:
        """Book what was computed for one answer, and say its new tokens."""
        answer, job = share.answer, share.answer.job
        assert answer.sequence is not None
        self.pool.grow(answer.sequence, share.count)
        answer.computed += share.count
        if not share.outputs:
            if answer.choice == 0 and answer.generated == 0:
                self._out.append((job.number, Progress(answer.computed, answer.prompt_length)))
            return
        try:
            self._sample(share, rows, now)
        except LocalLLMError as error:
            self.pool.drop_end(answer.sequence, answer.computed)
            self.fail(job, error)
            return
        self._out.extend((job.number, event) for event in answer.events())
        if answer.finished is not None:
            self._vacate(answer)
            self.counters.completion_tokens += answer.generated
            if job.done:
                del self._jobs[job.number]
                self._out.append((job.number, job.usage(self._clock())))

    def _sample(self, share: _Share, rows: NDArray[np.float32], now: float) -> None:
        """Walk the rows: each row's token is right; the next row only counts if it equals the draft."""
        answer = share.answer
        began = self._clock()
        taken: list[int] = []
        for index in range(share.outputs):
            token = answer.take(rows[index], now)
            taken.append(token)
            agreed = index < len(share.drafts) and token == share.drafts[index]
            if answer.finished is not None or not agreed:
                break
        self.counters.sampling_s += self._clock() - began
        accepted = len(taken) - 1
        if answer.sequence is not None and share.drafts:
            self.pool.grow(answer.sequence, accepted)
            answer.computed += accepted
            self.pool.drop_end(answer.sequence, answer.computed)
            if answer.job.request.prediction is not None:
                answer.job.accepted += accepted
                answer.job.rejected += len(share.drafts) - accepted
        if answer.predictor is not None:
            cost = self._pace.extra_steps(self._rows, len(share.drafts))
            answer.predictor.advance(taken, len(share.drafts), cost)

    # ------------------------------------------------------------ when a step fails

    def _recover(self, shares: list[_Share], status: int) -> None:
        """Undo the step; then make room, or find whose fault it was.

        Without room (llama.cpp restored its memory): forget idle prefixes, then park whoever came last, and only a
        job that is alone and still does not fit fails. Anything else may have stopped partway: each job of the step
        is tried alone once, and fails if it fails alone.
        """
        for share in shares:
            self._undo(share)
        if status == _NO_ROOM:
            if self.pool.idle():
                self.pool.make_room(self._context.cells)
            elif len(self._running) > 1:
                now = self._clock()
                self._park(max(self._running, key=lambda answer: answer.rank(now)), now)
                self._ceiling = len(self._running)  # until one of these ends, or it would come straight back
            else:
                self.fail(
                    shares[0].answer.job, GenerationFailed("There is no room left in the model's context.")
                )
            return
        if len(shares) == 1:
            self.fail(
                shares[0].answer.job,
                GenerationFailed("llama.cpp could not compute this request.", details={"status": status}),
            )
            return
        for share in shares:
            if share.count and share.answer.sequence is not None:
                self._context.batch.clear()
                share.drafts, share.outputs = [], min(share.outputs, 1)
                self._put(share)
                self._compute([share])

    def _undo(self, share: _Share) -> None:
        """Back to where ``computed`` says; a memory that cannot be cut starts this answer again."""
        answer = share.answer
        assert answer.sequence is not None
        if not self._context.remove(answer.sequence, answer.computed):
            self.pool.restart(answer.sequence)
            answer.computed = share.count = 0
