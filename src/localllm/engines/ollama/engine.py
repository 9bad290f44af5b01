"""The engine ``ollama``: models that lie in Ollama's store, or GGUFs of ours that are created there first."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import msgspec

from localllm.core.errors import EngineStalled, LoadFailed, ModelNotFound
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Capability, Engine, EngineStatus, Instance, InstanceInfo, LoadProgress
from localllm.engines.model_file import FileIdentity
from localllm.engines.ollama.daemon import PROBE_SECONDS, Daemon
from localllm.engines.ollama.instance import OllamaInstance, let_go
from localllm.engines.ollama.wire import ErrorBody, Resident, Residents, Shown
from localllm.engines.reaper import Reaper

CREATED_PREFIX = "localllm/"
_CAPABILITIES = {
    "completion": (
        Capability.CHAT,
        Capability.COMPLETION,
        Capability.TOOLS,
        Capability.JSON_SCHEMA,
        Capability.LOGPROBS,
        Capability.SEED,
    ),
    "thinking": (Capability.REASONING,),
    "vision": (Capability.VISION,),
    "embedding": (Capability.EMBEDDING,),
}
_CHUNK = 4 << 20
_BLOB_NAME = re.compile(r"sha256-([0-9a-f]{64})")


class OllamaEngine(Engine):
    """``url`` and ``binary`` None: as OLLAMA_HOST and PATH say."""

    name = "ollama"

    def __init__(
        self,
        *,
        log_dir: Path,
        reaper: Reaper | None = None,
        url: str | None = None,
        binary: str | None = None,
        parallel: int | None = None,
        environment: Mapping[str, str] | None = None,
        load_timeout_s: float = 300.0,
        token_timeout_s: float = 60.0,
    ) -> None:
        self.daemon = Daemon(
            log_dir=log_dir,
            reaper=reaper or Reaper(log_dir / "children"),
            url=url,
            binary=binary,
            parallel=parallel,
            environment=environment,
        )
        self._load_timeout_s = load_timeout_s
        self._token_timeout_s = token_timeout_s
        self._ours: set[str] = set()

    async def status(self) -> EngineStatus:
        return await self.daemon.status()

    async def load(self, plan: LaunchPlan, on_progress: Callable[[LoadProgress], None]) -> Instance:
        file = None if plan.engine_model else await anyio.to_thread.run_sync(_readable, Path(plan.model_path))
        on_progress(LoadProgress("starting Ollama"))
        await self.daemon.ensure()
        name = plan.engine_model or await self._created(plan, on_progress)
        shown = await self._show(name)
        options = _options(plan)
        on_progress(LoadProgress("loading"))
        try:
            await self._bring_up(name, plan, options)
            resident = await self._resident(name)
        except asyncio.CancelledError:
            await let_go(self.daemon, name)  # it would finish the load, and keep the model, all the same
            raise
        instance = OllamaInstance(
            self.daemon,
            resident.name,
            plan,
            await self._info(plan, shown, resident),
            options=options,
            features=frozenset(shown.capabilities),
            file=file,
            token_timeout_s=self._token_timeout_s,
        )
        self._ours.add(resident.name)
        instance.exited.add_done_callback(lambda _: self._ours.discard(resident.name))
        return instance

    async def _bring_up(self, name: str, plan: LaunchPlan, options: dict[str, object]) -> None:
        fields: dict[str, object] = {"model": name, "keep_alive": -1, "options": options}
        if plan.embedding:
            fields["input"] = []
        await self._post(
            "/api/embed" if plan.embedding else "/api/generate", fields, timeout_s=self._load_timeout_s
        )

    async def _info(self, plan: LaunchPlan, shown: Shown, resident: Resident) -> InstanceInfo:
        return InstanceInfo(
            engine=self.name,
            engine_version=await self.daemon.version(),
            context_length=resident.context_length or plan.context_length,
            parallel=self.daemon.parallel,
            capabilities=_capabilities(shown),
            template_source="ollama" if shown.template else None,
            warnings=_warnings(plan, resident),
        )

    async def close(self) -> None:
        await self.daemon.close()

    async def strangers(self) -> tuple[Resident, ...]:
        """What Ollama has loaded for others than us; () when none answers."""
        try:
            answer = await self.daemon.client.get("/api/ps", timeout=PROBE_SECONDS)
            found = msgspec.json.decode(answer.content, type=Residents).models
        except (httpx.HTTPError, msgspec.DecodeError):
            return ()
        return tuple(model for model in found if model.name not in self._ours)

    async def _created(self, plan: LaunchPlan, on_progress: Callable[[LoadProgress], None]) -> str:
        """A GGUF of ours under a name of ours in Ollama's store, named by its digest, so that it is made only once."""
        path = Path(plan.model_path)
        on_progress(LoadProgress("reading the model"))
        digest = await anyio.to_thread.run_sync(_sha256, path)
        name = f"{CREATED_PREFIX}{digest[:16]}"
        try:
            await self._show(name)
            return name
        except ModelNotFound:
            pass
        on_progress(LoadProgress("copying into Ollama", 0.0))
        blob = f"/api/blobs/sha256:{digest}"
        client = self.daemon.client
        try:
            if (await client.head(blob)).status_code != 200:
                size = (await anyio.Path(path).stat()).st_size
                answer = await client.post(
                    blob, content=_chunks(path, size, on_progress), timeout=self._load_timeout_s
                )
                answer.raise_for_status()
        except httpx.HTTPError as error:
            raise LoadFailed(f"The model could not be copied into Ollama: {error}.") from error
        fields: dict[str, object] = {"model": name, "files": {path.name: f"sha256:{digest}"}, "stream": False}
        await self._post("/api/create", fields, timeout_s=self._load_timeout_s)
        return name

    async def _show(self, name: str) -> Shown:
        answer = await self.daemon.client.post("/api/show", json={"model": name})
        if answer.status_code == 404:
            raise ModelNotFound(name, hint="Pull it with Ollama first.")
        if answer.status_code != 200:
            raise LoadFailed(f"Ollama cannot show {name}: {_error(answer)}.")
        return msgspec.json.decode(answer.content, type=Shown)

    async def _post(self, path: str, fields: dict[str, object], *, timeout_s: float) -> None:
        try:
            answer = await self.daemon.client.post(
                path, json=fields | {"stream": False}, timeout=httpx.Timeout(timeout_s, connect=5.0)
            )
        except httpx.TimeoutException as error:
            raise EngineStalled(f"Ollama did not load the model within {timeout_s:g} s.") from error
        except httpx.HTTPError as error:
            raise LoadFailed(
                f"The line to Ollama broke while loading: {str(error) or type(error).__name__}."
            ) from error
        if answer.status_code != 200:
            raise LoadFailed(f"Ollama could not load the model: {_error(answer)}.", hint="See Ollama's log.")

    async def _resident(self, name: str) -> Resident:
        """What Ollama says it loaded: the name it keeps, the context it gave, and the memory it took."""
        answer = await self.daemon.client.get("/api/ps")
        tagged = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
        for model in msgspec.json.decode(answer.content, type=Residents).models:
            if model.name == tagged:
                return model
        raise LoadFailed(
            f"Ollama loaded {name} and let it go at once.", hint="Its log says why; memory, most often."
        )


def _options(plan: LaunchPlan) -> dict[str, object]:
    """What makes Ollama load a model one way or the other: these must be the same in every later request.

    As few as possible: a program that asks Ollama for the same model with other ones makes it load anew.
    """
    options: dict[str, object] = {"num_ctx": plan.context_length}
    if plan.threads is not None:
        options["num_thread"] = plan.threads
    if plan.gpu_layers:
        options["num_gpu"] = plan.gpu_layers
    return options


def _capabilities(shown: Shown) -> frozenset[Capability]:
    """Older daemons list none; what they can load, they can complete."""
    listed = shown.capabilities or ["completion"]
    return frozenset(c for name in listed for c in _CAPABILITIES.get(name, ()))


def _warnings(plan: LaunchPlan, resident: Resident) -> tuple[str, ...]:
    found = []
    if resident.context_length is not None and resident.context_length != plan.context_length:
        found.append(
            f"Ollama gave {resident.context_length} tokens of context, not the {plan.context_length} asked for."
        )
    if (plan.kv_type_k, plan.kv_type_v) != ("f16", "f16"):
        found.append("Ollama's KV cache type is set by OLLAMA_KV_CACHE_TYPE of its daemon, not by this load.")
    if plan.chat_template:
        found.append("Ollama uses the template in its own store.")
    return tuple(found)


def _error(answer: httpx.Response) -> str:
    try:
        return msgspec.json.decode(answer.content, type=ErrorBody).error or f"status {answer.status_code}"
    except msgspec.DecodeError:
        return f"status {answer.status_code}"


def _readable(path: Path) -> FileIdentity:
    """Raises LoadFailed when there is no such file, or it is not a GGUF: Ollama would take it for something else."""
    identity = FileIdentity.of(path)
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise LoadFailed(f"The file {path.name} is not a GGUF model.")
    return identity


def _sha256(path: Path) -> str:
    """By its name where the store named it so (Ollama checks what it is sent), else by reading it."""
    if named := _BLOB_NAME.fullmatch(path.name):
        return named[1]
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _chunks(path: Path, size: int, on_progress: Callable[[LoadProgress], None]) -> AsyncIterator[bytes]:
    sent = 0
    async with await anyio.open_file(path, "rb") as file:
        while chunk := await file.read(_CHUNK):
            sent += len(chunk)
            on_progress(LoadProgress("copying into Ollama", sent / size))
            yield chunk
