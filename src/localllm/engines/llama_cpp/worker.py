"""The worker process: one model; one thread computes, one reads commands, one prepares requests.

Native code runs only here. Frames come in on stdin and go out on what was stdout (native code that prints gets
stderr instead). The main thread owns the llama_context, runs the scheduler step by step and writes all frames. End of
stdin ends the process.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from localllm.core.errors import GenerationFailed, LoadFailed, LocalLLMError, Unsupported
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Capability
from localllm.engines.llama_cpp import llama, protocol
from localllm.engines.llama_cpp.answer import Job
from localllm.engines.llama_cpp.embedding import Embedder
from localllm.engines.llama_cpp.pool import MemoryKind
from localllm.engines.llama_cpp.prepare import Preparer
from localllm.engines.llama_cpp.scheduler import Failure, Output, Scheduler

Work = Callable[[], None]


class Worker:
    """A loaded model and the threads around it."""

    def __init__(self, plan: LaunchPlan, commands: BinaryIO, reports: BinaryIO) -> None:
        self._commands = commands
        self._reports = reports
        self._inbox: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._to_prepare: queue.SimpleQueue[protocol.Preparable] = queue.SimpleQueue()
        self._preparing: set[int] = set()
        self._cancelled: set[int] = set()
        self._failed = False
        self._model = llama.Model(plan, self._report_loading)
        self._kind = _memory_kind(self._model, plan)
        spare = _spare_sequences(self._kind, plan)
        sequences = plan.parallel + spare
        cells = plan.context_length * (plan.parallel if plan.unified_kv else sequences)
        self._context = llama.Context(
            self._model, plan, sequences=sequences, cells=cells, max_outputs=_output_rows(plan)
        )
        if self._model.generates:
            _warm_up(self._context)
        length = min(plan.context_length, self._context.sequence_cells)
        self._scheduler = Scheduler(
            self._context,
            parallel=plan.parallel,
            kind=self._kind,
            window=self._model.sliding_window,
            can_copy=plan.unified_kv,
        )
        self._preparer = Preparer(self._model, plan, context_length=length, kind=self._kind)
        wants_embedding = plan.embedding or not self._model.generates
        self._embedder = Embedder(self._model, plan) if wants_embedding else None
        self._context_length = length

    def ready(self) -> protocol.Ready:
        return protocol.Ready(
            version=llama.version(),
            context_length=self._context_length,
            layers=self._model.n_layer,
            capabilities=tuple(sorted(self._capabilities())),
            template_source=self._preparer.template.source,
            warnings=self._preparer.template.warnings,
        )

    def _capabilities(self) -> set[Capability]:
        embeds = {Capability.EMBEDDING} if self._embedder is not None else set()
        if not self._model.generates:
            return {Capability.TOKENIZE} | embeds
        without = {Capability.VISION, Capability.EMBEDDING}
        if self._kind is MemoryKind.EXACT:
            without.add(Capability.PREDICTION)
        return set(Capability) - without | embeds

    def run(self) -> bool:
        """Serve until stdin ends. False: it ended because a frame could not be read."""
        self._send(self.ready())
        for target in (self._read, self._prepare):
            threading.Thread(target=target, name=target.__name__.strip("_"), daemon=True).start()
        while True:
            # an idle worker sleeps here; a busy one takes what has come and goes on
            least = 0 if self._scheduler.busy else 1
            for _ in range(max(least, self._inbox.qsize())):
                work = self._inbox.get()
                if work is None:
                    self._preparer.close()
                    return not self._failed
                work()
            if self._scheduler.busy:
                self._say(self._scheduler.step())

    # ------------------------------------------------------------ command threads

    def _read(self) -> None:
        """Take commands off stdin; what may take long is passed on, so that pings and cancels never wait for it."""
        try:
            while (body := _read_frame(self._commands)) is not None:
                command = protocol.command_decoder.decode(body)
                match command:
                    case protocol.Cancel(number):
                        self._inbox.put(partial(self._cancel, number))
                    case protocol.Ping() | protocol.ReadStats() | protocol.Embed():
                        self._inbox.put(partial(self._answer, command))
                    case protocol.Load():
                        raise ValueError("a worker loads one model in its life")
                    case _:
                        if isinstance(command, protocol.Generate):
                            self._preparing.add(command.number)
                        self._to_prepare.put(command)
        except Exception:  # noqa: BLE001 - a parent that talks nonsense is a bug: say so and end
            traceback.print_exc()
            self._failed = True
        finally:
            self._inbox.put(None)

    def _prepare(self) -> None:
        """Template, tokens and grammars, one request after the other."""
        while True:
            command = self._to_prepare.get()
            if isinstance(command, protocol.Generate):
                self._inbox.put(partial(self._submit, command.number, self._job(command)))
            else:
                self._inbox.put(partial(self._send, self._reply(command)))

    def _job(self, command: protocol.Generate) -> Job | Failure:
        try:
            return self._preparer.job(command.number, command.request)
        except Exception as error:  # noqa: BLE001 - what one request met is that request's failure
            return Failure(_named(error))

    def _reply(self, command: protocol.Count | protocol.Tokenize | protocol.Detokenize) -> protocol.Reply:
        number = command.number
        try:
            match command:
                case protocol.Count(_, prompt):
                    return protocol.Counted(number, self._preparer.count(prompt))
                case protocol.Tokenize(_, text, add_special):
                    ids = self._model.tokenize(text, add_special=add_special, parse_special=True)
                    return protocol.Tokens(number, tuple(ids))
                case protocol.Detokenize(_, tokens):
                    return protocol.Text(number, self._preparer.detokenize(tokens))
        except Exception as error:  # noqa: BLE001 - as above
            return protocol.Failed(number, protocol.Problem.of(_named(error)))

    # ------------------------------------------------------------ main thread

    def _submit(self, number: int, job: Job | Failure) -> None:
        self._preparing.discard(number)
        if number in self._cancelled:
            self._cancelled.discard(number)
        elif isinstance(job, Failure):
            self._say([(number, job)])
        else:
            self._scheduler.submit(job)

    def _cancel(self, number: int) -> None:
        if number in self._preparing:
            self._cancelled.add(number)
        self._scheduler.cancel(number)

    def _answer(self, command: protocol.Ping | protocol.ReadStats | protocol.Embed) -> None:
        match command:
            case protocol.Ping(number):
                self._send(protocol.Pong(number))
            case protocol.ReadStats(number):
                self._send(self._stats(number))
            case protocol.Embed(number, inputs):
                if self._embedder is None:
                    error = Unsupported(
                        "The model was not loaded for embeddings.",
                        hint="Load it with embeddings switched on.",
                    )
                    self._send(protocol.Failed(number, protocol.Problem.of(error)))
                else:
                    self._embed(number, self._embedder.embed(inputs))

    def _embed(self, number: int, work: Generator[None, None, tuple[NDArray[np.float32], int]]) -> None:
        """One computation; the rest goes to the back of the queue, so that answers are decoded in between."""
        try:
            next(work)
        except StopIteration as done:
            vectors, tokens = done.value
            data = vectors.astype("<f4").tobytes()
            self._send(protocol.Vectors(number, data, vectors.shape[1], tokens))
        except LocalLLMError as error:
            self._send(protocol.Failed(number, protocol.Problem.of(error)))
        else:
            self._inbox.put(partial(self._embed, number, work))

    def _stats(self, number: int) -> protocol.Stats:
        scheduler, counters = self._scheduler, self._scheduler.counters
        return protocol.Stats(
            number=number,
            running=scheduler.running,
            waiting=scheduler.waiting,
            waiting_by_tier=scheduler.waiting_by_tier(),
            kv_used_tokens=scheduler.pool.cells.used,
            kv_total_tokens=scheduler.pool.cells.total,
            prompt_tokens=counters.prompt_tokens,
            cached_tokens=counters.cached_tokens,
            completion_tokens=counters.completion_tokens,
            prefilled_tokens=counters.prefilled_tokens,
            decoded_rows=counters.decoded_rows,
            preemptions=counters.preemptions,
            steps=counters.steps,
            step_s=counters.step_s,
            decode_s=counters.decode_s,
            sampling_s=counters.sampling_s,
        )

    def _report_loading(self, fraction: float) -> None:
        self._send(protocol.Loading(fraction))

    def _say(self, output: list[Output]) -> None:
        """One frame for all that a step brought."""
        if not output:
            return
        events = [(number, event) for number, event in output if not isinstance(event, Failure)]
        failures = [
            (number, protocol.Problem.of(event.error))
            for number, event in output
            if isinstance(event, Failure)
        ]
        self._send(protocol.Step(events, failures))

    def _send(self, report: protocol.Report) -> None:
        self._reports.write(protocol.frame(report))
        self._reports.flush()


def _named(error: Exception) -> LocalLLMError:
    """The error as one that can be told; what has no name of its own is a bug, and its traceback goes to the log."""
    if isinstance(error, LocalLLMError):
        return error
    traceback.print_exception(error)
    return GenerationFailed("The request could not be prepared; the engine's log says why.")


def _memory_kind(model: llama.Model, plan: LaunchPlan) -> MemoryKind:
    if model.recurrent:
        return MemoryKind.EXACT
    return MemoryKind.WINDOW if model.sliding_window and not plan.swa_full else MemoryKind.FULL


def _spare_sequences(kind: MemoryKind, plan: LaunchPlan) -> int:
    """Sequences beyond ``parallel`` that only remember prefixes. They are free where the KV cache is one for all;
    elsewhere each costs a window, a state or a whole context."""
    if not plan.unified_kv:
        return 0
    wanted = {MemoryKind.FULL: 32, MemoryKind.WINDOW: 2, MemoryKind.EXACT: 1}[kind]
    return max(0, min(wanted, llama.most_sequences() - plan.parallel))


def _warm_up(context: llama.Context) -> None:
    """Compute one token: weights come off the disk now instead of in the first request, and what fails fails here.

    Raises:
        LoadFailed: the model cannot be computed.
    """
    context.batch.put(0, np.zeros(1, np.int32), 0, 1)
    status = context.decode()
    if status:
        raise LoadFailed("llama.cpp loaded the model but cannot compute it.", details={"status": status})
    context.clear()


def _output_rows(plan: LaunchPlan) -> int:
    """Rows of logits one step may want: one per sequence, and drafts for one answer."""
    return min(plan.batch, plan.parallel + 32)


def _read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame's body; None at the end of the stream."""
    header = stream.read(protocol.HEADER_BYTES)
    if len(header) < protocol.HEADER_BYTES:
        return None
    length = int.from_bytes(header, "big")
    body = stream.read(length)
    return body if len(body) == length else None


def _private_stdout() -> BinaryIO:
    """Our own stdout; from here on whatever prints to descriptor 1 prints to stderr."""
    private = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(private, "wb")


def main() -> None:
    reports = _private_stdout()
    commands = os.fdopen(0, "rb", closefd=False)
    llama.log_to_stderr()
    first = _read_frame(commands)
    if first is None:
        return
    load = protocol.command_decoder.decode(first)
    if not isinstance(load, protocol.Load):
        sys.exit("the first frame must be a launch plan")
    try:
        worker = Worker(load.plan, commands, reports)
    except LocalLLMError as error:
        reports.write(protocol.frame(protocol.LoadFailure(protocol.Problem.of(error))))
        reports.flush()
        sys.exit(1)
    if not worker.run():
        sys.exit(1)


if __name__ == "__main__":
    main()
