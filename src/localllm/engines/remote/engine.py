"""The engine of one remote. Loading a model is asking whether it is there and what it can do."""

from __future__ import annotations

from collections.abc import Callable

from localllm.core.errors import LocalLLMError
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Engine, EngineStatus, InstanceInfo, LoadProgress
from localllm.engines.remote.connection import Connection
from localllm.engines.remote.instance import RemoteInstance
from localllm.engines.remote.probe import probe
from localllm.engines.remote.target import Target
from localllm.engines.remote.wire import ModelEntry, ModelList

_STATUS_S = 2.5


class RemoteEngine(Engine):
    """``name`` is ``remote:NAME``, so that several remotes are several engines."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.name = f"remote:{target.name}"
        self._connection = Connection(target)

    async def status(self) -> EngineStatus:
        try:
            await self._connection.get("/models", ModelList, within_s=_STATUS_S)
        except LocalLLMError as error:
            return EngineStatus(name=self.name, available=False, reason=error.message, hint=error.hint)
        return EngineStatus(name=self.name, available=True, reason=self.target.base_url)

    async def models(self) -> tuple[ModelEntry, ...]:
        """What the remote lists. Raises EngineUnavailable and the like."""
        return tuple((await self._connection.get("/models", ModelList)).data)

    async def load(self, plan: LaunchPlan, on_progress: Callable[[LoadProgress], None]) -> RemoteInstance:
        """``plan.engine_model`` is our name of the model; ``target.models`` may give it another one there."""
        asked = plan.engine_model or plan.model_path
        model = self.target.models.get(asked, asked)
        on_progress(LoadProgress("asking"))
        abilities = await probe(self._connection, model)
        info = InstanceInfo(
            engine=self.name,
            engine_version=abilities.server,
            context_length=abilities.context_length,
            parallel=self.target.parallel,
            capabilities=abilities.capabilities,
            template_source="remote",
            warnings=abilities.warnings,
        )
        return RemoteInstance(self._connection, info, abilities, model=model, stop=plan.stop)

    async def close(self) -> None:
        await self._connection.close()
