"""The whole service on the scripted engine, as a process of its own: ``python -m tests.support.scripted_service``.

For tests that kill it, and for trying the app without a model. Settings come from the environment, as always.
A message with one of the words below is answered by what the word says, any other is echoed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

from localllm.cli import diagnostics
from localllm.cli.binding import bind
from localllm.cli.serve import serve_on
from localllm.core.control import LoadRequest
from localllm.core.errors import LocalLLMError
from localllm.core.facts import ModelFacts, facts_from_header
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device
from localllm.hub.gguf_file import read_header
from localllm.hub.store import StoredModel
from localllm.service.logs import logging_to
from localllm.service.planning import Planned
from localllm.settings.load import load_settings
from localllm.settings.paths import resolve_paths
from tests.support.script import Crash, Flood, Hang, Reasoning, Text
from tests.support.scripted_engine import ScriptedEngine


class FixedPlanning:
    """Every model takes ``model_bytes`` of one device that has ``free_bytes``; nothing is probed."""

    def __init__(self, *, context_length: int = 4096, parallel: int = 2, model_bytes: int = 1 << 20) -> None:
        self.context_length = context_length
        self.parallel = parallel
        self.model_bytes = model_bytes

    async def devices(self) -> tuple[Device, ...]:
        return ()

    async def facts(self, model: StoredModel) -> ModelFacts:
        return facts_from_header(read_header(model.path))

    async def plan(
        self, model: StoredModel, request: LoadRequest, available_bytes: Mapping[str, int]
    ) -> Planned:
        launch = LaunchPlan(
            model_path=str(model.path),
            context_length=request.context_length or self.context_length,
            parallel=request.parallel or self.parallel,
        )
        return Planned(launch=launch, bytes_by_device={"cpu": self.model_bytes})


def scripted_engine() -> ScriptedEngine:
    engine = ScriptedEngine()
    engine.when("CRASH", Text("half an"), Crash(exit_code=-9))
    engine.when("HANG", Text("a beginning"), Hang())
    engine.when("LONG", Flood(200_000))
    engine.when("THINK", Reasoning("let me see"), Text("the answer"))
    return engine


def main() -> int:
    paths = resolve_paths()
    try:
        loaded = load_settings(paths)
        server = loaded.settings.server
        with bind(server.host, server.port, paths) as listener, logging_to(paths.service_log, "info"):
            asyncio.run(
                serve_on(
                    listener,
                    paths,
                    loaded,
                    engines={"scripted": scripted_engine()},
                    planning=FixedPlanning(),
                )
            )
    except LocalLLMError as error:
        return diagnostics.report(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
