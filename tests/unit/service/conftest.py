"""A manager, pipeline and chats on the scripted engine, without a port, a store or a real planner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from localllm.core.generation import ChatPrompt, Event, GenerationRequest, Message
from localllm.engines.base import Capability
from localllm.service.activity import Activity
from localllm.service.background import Background
from localllm.service.manager import Manager
from localllm.service.notices import Notices
from localllm.service.pipeline import Call, Pipeline
from tests.support.fixed_planning import FixedPlanning
from tests.support.scripted_engine import DEFAULT_CAPABILITIES, ScriptedEngine
from tests.support.stored_models import ListedModels, stored_model


@dataclass
class Parts:
    """What most tests here touch. Two models are known: ``a`` and ``b``."""

    engine: ScriptedEngine
    planning: FixedPlanning
    source: ListedModels
    background: Background
    manager: Manager
    activity: Activity
    notices: Notices
    pipeline: Pipeline

    def call(self, text: str, *, model: str = "a", request_id: str = "r1") -> Call:
        prompt = ChatPrompt(messages=(Message(role="user", content=text),))
        request = GenerationRequest(request_id=request_id, prompt=prompt)
        return Call(id=request_id, endpoint="test", model=model, request=request)

    async def ask(self, text: str, *, model: str = "a") -> list[Event]:
        return [event async for event in self.pipeline.generate(self.call(text, model=model))]


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    # an engine without a scheduler of its own: its queue is the service's
    engine = ScriptedEngine(capabilities=DEFAULT_CAPABILITIES - {Capability.PRIORITY})
    planning, activity, notices = FixedPlanning(), Activity(), Notices()
    source = ListedModels([stored_model(name, tmp_path / f"{name}.gguf") for name in ("a", "b")])
    async with Background() as background:
        manager = Manager(
            source=source,
            engines={"scripted": engine},
            planning=planning,
            background=background,
            queue_limit=4,
            keep_alive_s=None,
            notices=notices,
        )
        pipeline = Pipeline(manager, activity)
        yield Parts(engine, planning, source, background, manager, activity, notices, pipeline)
        await manager.close()
