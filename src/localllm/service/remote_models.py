"""The models of the remotes as part of the library, under ``NAME/model``; asked for when the service starts and now and then."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from localllm.core.errors import LocalLLMError
from localllm.core.generation import Sampling
from localllm.engines.remote.engine import RemoteEngine
from localllm.engines.remote.wire import ModelEntry
from localllm.hub.store import StoredModel

log = logging.getLogger(__name__)

LOOK_EVERY_S = 300.0


class RemoteModels:
    """``models`` is what the last look found. What the configuration maps is there even when a remote lists nothing."""

    def __init__(self, engines: Iterable[RemoteEngine], on_change: Callable[[], None] = lambda: None) -> None:
        self._engines = tuple(engines)
        self._on_change = on_change
        self._since = time.time()
        self._listed: dict[str, tuple[ModelEntry, ...]] = {}
        self.models: Sequence[StoredModel] = self._all()

    async def look(self) -> None:
        """Ask every remote once, side by side; one that does not answer keeps what it listed before."""
        await asyncio.gather(*(self._ask(engine) for engine in self._engines))
        found = self._all()
        if found != self.models:
            self.models = found
            self._on_change()

    async def run(self) -> None:
        while self._engines:
            await self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    async def _ask(self, engine: RemoteEngine) -> None:
        try:
            self._listed[engine.name] = await engine.models()
        except LocalLLMError as error:
            log.warning(
                "a remote does not list its models", extra={"engine": engine.name, "code": error.code}
            )

    def _all(self) -> tuple[StoredModel, ...]:
        return tuple(
            _stored(engine, name, length, self._since)
            for engine in self._engines
            for name, length in sorted(self._names(engine).items())
        )

    def _names(self, engine: RemoteEngine) -> dict[str, int | None]:
        """Our names of a remote's models with the contexts it tells; a name that is mapped hides the one it stands for."""
        lengths = {
            entry.id: entry.context_length or entry.max_model_len or entry.max_context_length
            for entry in self._listed.get(engine.name, ())
        }
        mapped = engine.target.models
        listed = {name: length for name, length in lengths.items() if name not in mapped.values()}
        return listed | {ours: lengths.get(theirs) for ours, theirs in mapped.items()}


def _stored(engine: RemoteEngine, name: str, context_length: int | None, since: float) -> StoredModel:
    target = engine.target
    return StoredModel(
        name=f"{target.name}/{name}",
        path=Path(f"{engine.name}/{name}"),
        size_bytes=0,
        sha256=None,
        quant=None,
        architecture=None,
        parameters=None,
        trained_context_length=target.context_length or context_length,
        capabilities=("completion", "chat"),
        chat_template=None,
        stop=(),
        sampling=Sampling(),
        licence=None,
        source=target.base_url,
        owner=engine.name,
        added_at=since,
        mmproj_path=None,
    )
