"""The service put together: every part there, and let go of in order."""

from __future__ import annotations

import asyncio

import pytest

from localllm.core.control import ChatPatch, ChatSettings, SendRequest
from localllm.core.errors import AlreadyRunning
from localllm.core.generation import Tier
from localllm.hub.store import Store
from localllm.service.doctor import examine
from localllm.service.fit import fit_of
from localllm.service.runtime import open_runtime
from localllm.settings.identity import read_admin_key, read_identity
from localllm.settings.load import load_settings
from localllm.settings.paths import Paths
from tests.support.fixed_planning import FixedPlanning
from tests.support.script import Text, Wait
from tests.support.scripted_engine import ScriptedEngine
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.until import until


@pytest.fixture
def stored(paths: Paths) -> Paths:
    """One model, ``demo``, in the store."""
    paths.data_dir.mkdir(parents=True)
    model = write_tiny_gguf(paths.data_dir / "tiny.gguf", "llama")
    Store(paths.store_dir).import_file(model, name="demo", mode="reference")
    return paths


async def test_it_is_found_while_it_runs_and_gone_afterwards(stored: Paths) -> None:
    engine = ScriptedEngine()
    loaded = load_settings(stored, {})
    async with open_runtime(
        stored, loaded, host="127.0.0.1", port=4711, engines={"scripted": engine}, planning=FixedPlanning()
    ) as runtime:
        assert read_identity(stored) == runtime.identity and runtime.identity.port == 4711
        assert read_admin_key(stored) == runtime.admin_key
        with pytest.raises(AlreadyRunning):
            async with open_runtime(stored, loaded, engines={}, planning=FixedPlanning()):
                raise AssertionError("two at once")
        async with runtime.manager.lease("demo", tier=Tier.PRIORITY):
            pass
    assert read_identity(stored) is None
    assert engine.instances[0].exited.done()


async def test_replies_in_progress_are_kept_when_it_stops(stored: Paths) -> None:
    engine = ScriptedEngine()
    engine.enqueue(Text("a beginning"), Wait(asyncio.Event()))
    loaded = load_settings(stored, {})
    async with open_runtime(
        stored, loaded, engines={"scripted": engine}, planning=FixedPlanning()
    ) as runtime:
        chat = (await runtime.chats.create(ChatPatch(settings=ChatSettings(model="demo")))).summary.id
        await runtime.chats.send(chat, SendRequest(content="go"))
        await until(lambda: any(r.completion_tokens == 2 for r in runtime.activity.requests()))

    async with open_runtime(
        stored, loaded, engines={"scripted": engine}, planning=FixedPlanning()
    ) as runtime:
        reply = (await runtime.chats.detail(chat)).messages[-1]
        assert (reply.content, reply.state) == ("a beginning", "partial")


async def test_the_doctor_and_the_fit_table_look_at_the_whole(stored: Paths) -> None:
    loaded = load_settings(stored, {})
    async with open_runtime(
        stored,
        loaded,
        engines={"scripted": ScriptedEngine(available=False)},
        planning=FixedPlanning(),
    ) as runtime:
        checks = {check.name: check for check in (await examine(runtime)).checks}
        assert checks["state folder"].state == "ok" and checks["configuration"].state == "ok"
        assert checks["engine"].state == "failed"
        table = await fit_of(runtime, "demo", context_length=512, kv_type="f16", parallel=1)
        assert any(row.here for row in table.rows)
