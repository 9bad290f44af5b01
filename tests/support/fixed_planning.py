"""A planner for tests of the service: every model takes what the test says, of memory that the test owns."""

from __future__ import annotations

from collections.abc import Mapping

from localllm.core.control import LoadRequest
from localllm.core.errors import DoesNotFit
from localllm.core.facts import ModelFacts, facts_from_header
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device, DeviceKind
from localllm.hub.gguf_file import read_header
from localllm.hub.store import StoredModel
from localllm.service.planning import Planned

ENOUGH = 1 << 50


class FixedPlanning:
    """``sizes`` gives a model's bytes by name (others take 1); ``total_bytes`` is all the memory there is.

    ``budgets`` notes what each plan was offered, for tests that look at it.
    """

    def __init__(self, *, context_length: int = 4096, parallel: int = 2, total_bytes: int = ENOUGH) -> None:
        self.context_length = context_length
        self.parallel = parallel
        self.total_bytes = total_bytes
        self.pad_context_to = 1
        self.sizes: dict[str, int] = {}
        self.budgets: list[int] = []

    async def devices(self) -> tuple[Device, ...]:
        return (
            Device(
                id="cpu",
                kind=DeviceKind.CPU,
                name="test",
                total_bytes=self.total_bytes,
                free_bytes=self.total_bytes,
                margin_bytes=0,
            ),
        )

    async def facts(self, model: StoredModel) -> ModelFacts:
        return facts_from_header(read_header(model.path))

    async def plan(
        self,
        model: StoredModel,
        request: LoadRequest,
        available_bytes: Mapping[str, int],
        *,
        embedding: bool = False,
    ) -> Planned:
        needed, available = self.sizes.get(model.name, 1), available_bytes["cpu"]
        self.budgets.append(available)
        if needed > available and not request.force:
            raise DoesNotFit(
                f"{model.name} needs {needed} bytes, {available} are free.",
                details={"needed_bytes": needed, "available_bytes": available},
            )
        context_length = request.context_length or self.context_length
        launch = LaunchPlan(
            model_path=str(model.path),
            context_length=-(-context_length // self.pad_context_to) * self.pad_context_to,
            parallel=request.parallel or self.parallel,
            embedding=embedding,
        )
        return Planned(launch=launch, bytes_by_device={"cpu": needed}, total_bytes=needed)
