"""The llama_cpp engine as the service sees it: starts a worker per model and passes requests and events through.

Nothing native is imported here, and nothing is computed: a generation costs one frame out and, per token, one queue
entry in. What a dead or silent worker means for the requests it had is decided here too.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import itertools
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from localllm.core.engine_log import parse_buffers
from localllm.core.errors import (
    BadRequest,
    Cancelled,
    EngineCrashed,
    EngineStalled,
    EngineUnavailable,
    LoadFailed,
    LocalLLMError,
    OutOfMemory,
    UnknownArchitecture,
)
from localllm.core.generation import Event, GenerationRequest, Prompt, Usage
from localllm.core.launch import LaunchPlan
from localllm.engines.base import (
    BufferReport,
    Capability,
    EmbeddingResult,
    Engine,
    EngineStatus,
    Exit,
    Instance,
    InstanceInfo,
    InstanceStats,
    LoadProgress,
)
from localllm.engines.builds.shelf import Shelf
from localllm.engines.llama_cpp import protocol
from localllm.engines.model_file import FileIdentity
from localllm.engines.process import Child, ChildSpec, spawn
from localllm.engines.reaper import Reaper

_WORKER = (sys.executable, "-m", "localllm.engines.llama_cpp.worker")
_PING_S = 5.0
_REPLY_S = 300.0
_LOG_LINES = 2000
_LOG_END_S = 1.0
_END_S = 3.0

Reply = TypeVar("Reply", bound=protocol.Reply)


class LlamaCppEngine(Engine):
    """Models on llama-cpp-python, each in its own worker process.

    ``load_timeout_s``: longest silence while loading; ``token_timeout_s``: longest silence of a worker that has work.
    ``shelf``: builds of llama-cpp-python beside the environment's own; the one in use there comes first.
    """

    name = "llama_cpp"

    def __init__(
        self,
        *,
        log_dir: Path,
        load_timeout_s: float = 300.0,
        token_timeout_s: float = 60.0,
        reaper: Reaper | None = None,
        command: Sequence[str] = _WORKER,
        shelf: Shelf | None = None,
    ) -> None:
        self._log_dir = log_dir
        self._load_timeout_s = load_timeout_s
        self._token_timeout_s = token_timeout_s
        self._reaper = reaper or Reaper(log_dir.parent / "children")
        self._command = tuple(command)
        self._shelf = shelf

    async def status(self) -> EngineStatus:
        build = self._shelf.in_use() if self._shelf else None
        if build is not None:
            return EngineStatus(
                name=self.name,
                available=True,
                version=build.version,
                reason=f"The build {build.name} is in use.",
            )
        if importlib.util.find_spec("llama_cpp") is None or importlib.util.find_spec("numpy") is None:
            return EngineStatus(
                name=self.name,
                available=False,
                reason="llama-cpp-python is not installed.",
                hint="Get the build for this machine with: localllm engine install",
            )
        return EngineStatus(
            name=self.name,
            available=True,
            version=importlib.metadata.version("llama-cpp-python"),
            reason="llama-cpp-python is installed.",
        )

    async def load(self, plan: LaunchPlan, on_progress: Callable[[LoadProgress], None]) -> Instance:
        status = await self.status()
        if not status.available:
            raise EngineUnavailable(status.reason or "", hint=status.hint)
        file = FileIdentity.of(Path(plan.model_path))
        log = _LoadLog(asyncio.get_running_loop())
        spec = ChildSpec(
            name=f"llama_cpp-{Path(plan.model_path).stem}",
            command=self._command,
            log_dir=self._log_dir,
            environment=self._build_environment(),
            on_line=log.add,
        )
        try:
            child = await spawn(spec, self._reaper)
        except OSError as error:
            raise EngineUnavailable(f"The worker cannot be started: {error.strerror}") from error
        try:
            on_progress(LoadProgress("starting"))
            child.stdin.write(protocol.frame(protocol.Load(plan)))
            ready = await self._until_ready(child, log, on_progress)
            await log.complete()
        except BaseException:
            child.kill()
            await asyncio.wait({child.exited}, timeout=_END_S)
            raise
        info = _info(ready, plan, child.pid, log.text())
        return LlamaCppInstance(child, info, file, token_timeout_s=self._token_timeout_s)

    def _build_environment(self) -> dict[str, str]:
        """What makes a worker import the chosen build instead of the one beside localllm."""
        build = self._shelf.in_use() if self._shelf else None
        if self._shelf is None or build is None:
            return {}
        return {"PYTHONPATH": str(self._shelf.path_of(build.name))}

    async def _until_ready(
        self, child: Child, log: _LoadLog, on_progress: Callable[[LoadProgress], None]
    ) -> protocol.Ready:
        while True:
            try:
                async with asyncio.timeout(self._load_timeout_s):
                    report = await _read_report(child)
            except TimeoutError:
                child.kill("It said nothing for too long while loading.")
                raise LoadFailed(
                    f"Loading made no progress for {self._load_timeout_s:g} s.",
                    details={"stderr_tail": child.stderr_tail()},
                ) from None
            match report:
                case protocol.Loading(fraction):
                    on_progress(LoadProgress("loading", fraction))
                case protocol.Ready():
                    return report
                case protocol.LoadFailure(problem):
                    await _wait_for_end(
                        child
                    )  # the worker ends now, and its log with it: the cause is in there
                    raise _load_error(problem.error(), log.text())
                case None:
                    ended = await _wait_for_end(child)
                    raise LoadFailed(
                        f"The worker ended while loading. {ended.cause}",
                        details={"exit_code": ended.exit_code, "stderr_tail": ended.stderr_tail},
                    )
                case _:
                    continue


class LlamaCppInstance(Instance):
    """One worker. A single task reads its frames and watches its silence."""

    def __init__(
        self, child: Child, info: InstanceInfo, file: FileIdentity, *, token_timeout_s: float
    ) -> None:
        super().__init__()
        self.info = info
        self._child = child
        self._file = file
        self._token_timeout_s = token_timeout_s
        self._numbers = itertools.count(1)
        self._generations: dict[int, asyncio.Queue[Event | LocalLLMError]] = {}
        self._replies: dict[int, asyncio.Future[protocol.Reply]] = {}
        self._heard_at = time.monotonic()
        self._unloading = False
        self._stalled = False
        self._task = asyncio.get_running_loop().create_task(self._serve(), name=child.name)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self._file.require_unchanged()
        number = next(self._numbers)
        events: asyncio.Queue[Event | LocalLLMError] = asyncio.Queue()
        self._generations[number] = events
        try:
            self._send(protocol.Generate(number, request))
            while True:
                event = await events.get()
                if isinstance(event, LocalLLMError):
                    raise event
                if isinstance(event, Usage):
                    self._generations.pop(number, None)
                yield event
                if isinstance(event, Usage):
                    return
        finally:
            if self._generations.pop(number, None) is not None:
                self._send_quietly(protocol.Cancel(number))

    async def embed(self, inputs: Sequence[str | Sequence[int]]) -> EmbeddingResult:
        asked = tuple(text if isinstance(text, str) else tuple(text) for text in inputs)
        reply = await self._ask(lambda number: protocol.Embed(number, asked), protocol.Vectors)
        floats = memoryview(reply.data).cast("f")
        rows = (floats[at : at + reply.width] for at in range(0, len(floats), reply.width))
        return EmbeddingResult(tuple(tuple(row) for row in rows), reply.prompt_tokens)

    async def count_tokens(self, prompt: Prompt) -> int:
        return (await self._ask(lambda number: protocol.Count(number, prompt), protocol.Counted)).tokens

    async def tokenize(self, text: str, *, add_special: bool = False) -> list[int]:
        reply = await self._ask(lambda number: protocol.Tokenize(number, text, add_special), protocol.Tokens)
        return list(reply.tokens)

    async def detokenize(self, tokens: Sequence[int]) -> str:
        asked = tuple(tokens)
        return (await self._ask(lambda number: protocol.Detokenize(number, asked), protocol.Text)).text

    async def stats(self) -> InstanceStats:
        read = await self._ask(protocol.ReadStats, protocol.Stats)
        return InstanceStats(
            running=read.running,
            waiting=read.waiting,
            kv_used_tokens=read.kv_used_tokens,
            kv_total_tokens=read.kv_total_tokens,
            prompt_tokens_total=read.prompt_tokens,
            cached_tokens_total=read.cached_tokens,
            completion_tokens_total=read.completion_tokens,
            resident_bytes=_resident_bytes(self._child.pid),
            waiting_by_tier=read.waiting_by_tier,
            prefilled_tokens_total=read.prefilled_tokens,
            decoded_rows_total=read.decoded_rows,
            preemptions_total=read.preemptions,
            steps_total=read.steps,
            step_seconds_total=read.step_s,
            model_seconds_total=read.decode_s,
            sampling_seconds_total=read.sampling_s,
        )

    async def ping(self) -> None:
        await self._ask(protocol.Ping, protocol.Pong, timeout_s=_PING_S)

    async def unload(self) -> None:
        self._unloading = True
        self._end_everything(Cancelled("The model was unloaded."))
        await self._child.stop()
        await asyncio.wait({self._task})

    # ------------------------------------------------------------ the worker's side

    def _send(self, command: protocol.Command) -> None:
        """Raises: BadRequest: no frame can hold it; EngineCrashed, Cancelled: there is no worker any more."""
        if self._unloading:
            raise Cancelled("The model was unloaded.")
        if self.exited.done():
            raise _crashed(self.exited.result())
        try:
            data = protocol.frame(command)
        except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as error:
            raise BadRequest(f"The request holds a value that cannot be passed on: {error}") from error
        self._child.stdin.write(data)

    def _send_quietly(self, command: protocol.Command) -> None:
        if self._child.alive and not self._unloading:
            self._child.stdin.write(protocol.frame(command))

    async def _ask(
        self,
        command: Callable[[int], protocol.Command],
        kind: type[Reply],
        *,
        timeout_s: float = _REPLY_S,
    ) -> Reply:
        number = next(self._numbers)
        reply: asyncio.Future[protocol.Reply] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        try:
            self._send(command(number))
            async with asyncio.timeout(timeout_s):
                answer = await reply
        except TimeoutError:
            raise EngineStalled(f"The engine did not answer within {timeout_s:g} s.") from None
        finally:
            self._replies.pop(number, None)
        if isinstance(answer, protocol.Failed):
            raise answer.problem.error()
        assert isinstance(answer, kind)
        return answer

    async def _serve(self) -> None:
        """Until the worker is gone, however that comes about; then every open request hears why."""
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                while (report := await _read_report(self._child)) is not None:
                    self._heard_at = time.monotonic()
                    self._dispatch(report)
                watch.cancel()
        finally:
            ended = await _wait_for_end(self._child)
            self.exited.set_result(ended)
            self._end_everything(self._last_word(ended))

    def _last_word(self, ended: Exit) -> LocalLLMError:
        """What requests hear that were open when the worker ended."""
        if ended.expected:
            return Cancelled("The model was unloaded.")
        if self._stalled:
            return EngineStalled(ended.cause, hint="The engine is started again with the next request.")
        return _crashed(ended)

    def _dispatch(self, report: protocol.Report) -> None:
        match report:
            case protocol.Step(events, failures):
                for number, event in events:
                    generation = self._generations.get(number)
                    if generation is not None:
                        generation.put_nowait(event)
                for number, problem in failures:
                    generation = self._generations.pop(number, None)
                    if generation is not None:
                        generation.put_nowait(problem.error())
            case protocol.Loading() | protocol.Ready() | protocol.LoadFailure():
                return
            case _:
                reply = self._replies.get(report.number)
                if reply is not None and not reply.done():
                    reply.set_result(report)

    async def _watch(self) -> None:
        """Kill a worker that has work but is silent. A ping keeps a busy one from being taken for a dead one."""
        pause = self._token_timeout_s / 4
        while True:
            await asyncio.sleep(pause)
            if not self._generations:
                continue
            silence = time.monotonic() - self._heard_at
            if silence >= self._token_timeout_s:
                self._stalled = True
                self._child.kill(f"It said nothing for {silence:.0f} s while it had work.")
            elif silence >= pause:
                self._send_quietly(protocol.Ping(next(self._numbers)))

    def _end_everything(self, error: LocalLLMError) -> None:
        for generation in self._generations.values():
            generation.put_nowait(error)
        self._generations.clear()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(error)


class _LoadLog:
    """The worker's log lines of the load, for its buffer sizes. Lines come on the log's own thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines: list[str] = []
        self._has_buffers = asyncio.Event()

    def add(self, line: str) -> None:
        if len(self._lines) < _LOG_LINES:
            self._lines.append(line)
            if "compute buffer size" in line:
                self._loop.call_soon_threadsafe(self._has_buffers.set)

    async def complete(self) -> None:
        """Wait, but not for long, until the last of the sizes has come through the pipe."""
        try:
            async with asyncio.timeout(_LOG_END_S):
                await self._has_buffers.wait()
        except TimeoutError:
            return

    def text(self) -> str:
        return "\n".join(self._lines)


async def _read_report(child: Child) -> protocol.Report | None:
    """The worker's next frame; None when there will be none, because it is gone or talks nonsense."""
    try:
        header = await child.stdout.readexactly(protocol.HEADER_BYTES)
        length = int.from_bytes(header, "big")
        if length > protocol.LONGEST_FRAME_BYTES:
            return None
        return protocol.report_decoder.decode(await child.stdout.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError, msgspec.DecodeError):
        return None


async def _wait_for_end(child: Child) -> Exit:
    """How a worker ended that has closed its output; one that does not go is killed."""
    await asyncio.wait({child.exited}, timeout=_END_S)
    if child.alive:
        child.kill("It closed its output but went on running.")
    return await asyncio.shield(child.exited)


def _info(ready: protocol.Ready, plan: LaunchPlan, pid: int, log: str) -> InstanceInfo:
    buffers = (
        BufferReport("kv" if buffer.kind == "recurrent" else buffer.kind, buffer.device, buffer.bytes)
        for buffer in parse_buffers(log)
    )
    return InstanceInfo(
        engine=LlamaCppEngine.name,
        engine_version=ready.version,
        context_length=ready.context_length,
        parallel=plan.parallel,
        capabilities=frozenset(Capability(name) for name in ready.capabilities),
        pid=pid,
        buffers=tuple(buffers),
        gpu_layers=min(plan.gpu_layers, ready.layers + 1),
        total_layers=ready.layers + 1,
        template_source=ready.template_source,
        warnings=ready.warnings,
    )


def _load_error(error: LocalLLMError, log: str) -> LocalLLMError:
    """llama.cpp only says "no"; what kind of no is in its log, which is all there is to tell them apart by."""
    details: dict[str, object] = {**error.details, "stderr_tail": log[-8192:]}
    if "unknown model architecture" in log:
        return UnknownArchitecture(
            "This version of llama.cpp does not know the model's architecture.",
            hint="A newer llama-cpp-python may.",
            details=details,
        )
    if "failed to allocate" in log or "unable to allocate" in log:
        return OutOfMemory(
            "There was not enough memory for the model.",
            hint="Load it with a shorter context, fewer parallel sequences or a smaller quantisation.",
            details=details,
        )
    error.details = details
    return error


def _crashed(ended: Exit) -> EngineCrashed:
    return EngineCrashed(
        f"The engine's process ended. {ended.cause}",
        hint="It is started again with the next request.",
        details={"cause": ended.cause, "exit_code": ended.exit_code, "stderr_tail": ended.stderr_tail},
    )


def _resident_bytes(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return None
