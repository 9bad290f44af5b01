"""The ``llama_server`` engine: starts llama.cpp's server as a child for each model and waits until it is ready."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import deque
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import psutil

from localllm.core.engine_log import parse_buffers
from localllm.core.errors import EngineError, EngineUnavailable, LoadFailed
from localllm.core.launch import LaunchPlan
from localllm.engines.base import (
    BufferReport,
    Capability,
    Engine,
    EngineStatus,
    InstanceInfo,
    LoadProgress,
)
from localllm.engines.llama_server.command import Launcher, binary_command, find_launcher, host_command
from localllm.engines.llama_server.connection import Connection
from localllm.engines.llama_server.instance import LlamaServerInstance
from localllm.engines.llama_server.server_plan import HostPlan, HostReady
from localllm.engines.llama_server.wire import Props
from localllm.engines.load_failure import load_failure
from localllm.engines.model_file import FileIdentity
from localllm.engines.process import Child, ChildSpec, spawn
from localllm.engines.reaper import Reaper

_PROGRESS_EVERY_S = 0.2
_PROPS_S = 10.0
# at most five digits: the next line of an unbuffered log may follow without a line end
_LISTENING = re.compile(r"listening on (http://127\.0\.0\.1:\d{1,5})")
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_KEPT_LINES = 4_000
_NAME_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")


class LlamaServerEngine(Engine):
    """``binary`` names a ``llama-server`` to use instead of the bundled one. Timeouts are of silence, not of length."""

    name = "llama_server"

    def __init__(
        self,
        *,
        log_dir: Path,
        binary: str | None = None,
        load_timeout_s: float = 300,
        token_timeout_s: float = 60,
    ) -> None:
        self._log_dir = log_dir
        self._binary = binary
        self._load_timeout_s = load_timeout_s
        self._token_timeout_s = token_timeout_s
        self._reaper = Reaper(log_dir / "children")

    async def status(self) -> EngineStatus:
        launcher = find_launcher(self._binary)
        if launcher is None:
            return self._unavailable()
        if launcher.bundled:
            return EngineStatus(name=self.name, available=True, version=_bundled_version(), reason="bundled")
        return EngineStatus(name=self.name, available=True, reason=launcher.binary)

    def _unavailable(self) -> EngineStatus:
        if self._binary is not None:
            return EngineStatus(
                name=self.name,
                available=False,
                reason=f"There is no program {self._binary}.",
                hint="Correct engine.llama_server_path, or unset it to use the bundled server.",
            )
        return EngineStatus(
            name=self.name,
            available=False,
            reason="xllamacpp has no wheel for this platform, and no llama-server is on PATH.",
            hint="Install llama.cpp, or set engine.llama_server_path.",
        )

    async def load(
        self, plan: LaunchPlan, on_progress: Callable[[LoadProgress], None]
    ) -> LlamaServerInstance:
        launcher = find_launcher(self._binary)
        if launcher is None:
            status = self._unavailable()
            raise EngineUnavailable(status.reason or "", hint=status.hint)
        _require_launchable(plan)
        model = await asyncio.to_thread(FileIdentity.of, Path(plan.model_path))
        await asyncio.to_thread(self._reaper.reap)
        start = _Start(self._log_dir, self._reaper, launcher, plan, model, self._load_timeout_s, on_progress)
        return await start.run(self.name, self._token_timeout_s)


def _require_launchable(plan: LaunchPlan) -> None:
    if plan.draft_path is not None:
        raise LoadFailed(
            "llama_server does not load draft models here.", hint="Load it without a draft model."
        )


class _Start:
    """One load, from the process to the first answer of its server."""

    def __init__(
        self,
        log_dir: Path,
        reaper: Reaper,
        launcher: Launcher,
        plan: LaunchPlan,
        model: FileIdentity,
        timeout_s: float,
        on_progress: Callable[[LoadProgress], None],
    ) -> None:
        self._log_dir = log_dir
        self._reaper = reaper
        self._launcher = launcher
        self._plan = plan
        self._model = model
        self._timeout_s = timeout_s
        self._on_progress = on_progress
        self._key = secrets.token_urlsafe(32)
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._collecting = True
        self._address: str | None = None
        self._heard_at_s = time.monotonic()

    async def run(self, engine: str, token_timeout_s: float) -> LlamaServerInstance:
        child = await self._spawn()
        try:
            ready = await self._ready(child)
            self._collecting = False
            connection = Connection(ready.address, self._key)
            async with asyncio.timeout(_PROPS_S):
                props = await connection.get("/props", Props)
            return LlamaServerInstance(
                child=child,
                connection=connection,
                info=self._info(engine, ready, props, child.pid),
                plan=self._plan,
                props=props,
                model=self._model,
                token_timeout_s=token_timeout_s,
            )
        except BaseException as error:
            child.kill()
            if isinstance(error, OSError | EngineError) and not isinstance(error, LoadFailed):
                raise LoadFailed(f"llama-server loaded the model but does not answer: {error}") from error
            raise

    async def _spawn(self) -> Child:
        binary = self._launcher.binary
        command = host_command() if binary is None else binary_command(binary, self._plan, self._key)
        stem = _NAME_CHARACTERS.sub("_", self._model.path.stem)[:80]
        spec = ChildSpec(
            f"llama_server-{stem}",
            command.arguments,
            self._log_dir,
            command.environment,
            on_line=self._hear,
            stdout_to_log=binary is not None,
        )
        try:
            child = await spawn(spec, self._reaper)
        except OSError as error:
            raise LoadFailed(f"llama-server cannot be started: {error.strerror}.") from error
        if binary is None:
            child.stdin.write(msgspec.json.encode(HostPlan(self._plan, self._key)) + b"\n")
        return child

    def _hear(self, line: str) -> None:
        """Runs on the log's thread: it only leaves notes."""
        self._heard_at_s = time.monotonic()
        if self._collecting:
            self._lines.append(line)
            listening = _LISTENING.search(line)
            if listening is not None:
                self._address = listening[1]

    async def _ready(self, child: Child) -> HostReady:
        """Wait for the server's address; its death or its silence ends the wait.

        Raises:
            LoadFailed: with the cause.
        """
        resident = 0
        while not child.exited.done():
            ready = await (self._answered(child) if self._launcher.bundled else self._logged(child))
            if ready is not None:
                self._on_progress(LoadProgress("ready", 1.0))
                return ready
            resident = self._watch(child, resident)
        raise load_failure(child.exited.result())

    async def _answered(self, child: Child) -> HostReady | None:
        """What the host said on its stdout; None = nothing yet, or it has ended."""
        try:
            async with asyncio.timeout(_PROGRESS_EVERY_S):
                line = await child.stdout.readline()
        except TimeoutError:
            return None
        if line:
            return msgspec.json.decode(line, type=HostReady)
        await asyncio.wait({child.exited})
        return None

    async def _logged(self, child: Child) -> HostReady | None:
        """A binary only logs its address, and may do so before the model is loaded: then it answers 503."""
        await asyncio.wait({child.exited}, timeout=_PROGRESS_EVERY_S)
        if self._address is None or child.exited.done():
            return None
        try:
            await Connection(self._address, self._key).get("/health", object)
        except (OSError, EngineError):
            return None
        return HostReady(self._address, "")

    def _watch(self, child: Child, resident: int) -> int:
        """Report progress by how much of the file is in memory; nothing new for too long ends the child."""
        try:
            now = psutil.Process(child.pid).memory_info().rss
        except psutil.Error:
            return resident
        if now > resident:
            self._heard_at_s = time.monotonic()
            self._on_progress(LoadProgress("weights", min(0.99, now / max(1, self._model.size_bytes))))
        elif time.monotonic() - self._heard_at_s > self._timeout_s:
            child.kill(f"It made no progress loading for {self._timeout_s:.0f} s and was ended.")
        return max(now, resident)

    def _info(self, engine: str, ready: HostReady, props: Props, pid: int) -> InstanceInfo:
        text = "\n".join(self._lines)
        offloaded = _OFFLOADED.search(text)
        real = props.default_generation_settings.n_ctx
        warnings = []
        if real < self._plan.context_length:
            warnings.append(
                f"The engine gives each request {real} tokens of context instead of the planned "
                f"{self._plan.context_length}."
            )
        return InstanceInfo(
            engine=engine,
            engine_version=ready.version or None,
            context_length=real,
            parallel=props.total_slots,
            capabilities=_capabilities(props, self._plan),
            pid=pid,
            buffers=tuple(BufferReport(b.kind, b.device, b.bytes) for b in parse_buffers(text)),
            gpu_layers=int(offloaded[1]) if offloaded is not None else self._plan.gpu_layers,
            total_layers=int(offloaded[2]) if offloaded is not None else None,
            template_source="plan" if self._plan.chat_template is not None else "model",
            warnings=tuple(warnings),
        )


def _capabilities(props: Props, plan: LaunchPlan) -> frozenset[Capability]:
    if plan.embedding:
        return frozenset({Capability.EMBEDDING, Capability.TOKENIZE})
    cannot = {Capability.EMBEDDING, Capability.PREDICTION, Capability.PRIORITY}
    if not props.modalities.vision:
        cannot.add(Capability.VISION)
    return frozenset(Capability) - cannot


def _bundled_version() -> str | None:
    try:
        return version("xllamacpp")
    except PackageNotFoundError:
        return None
