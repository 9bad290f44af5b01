"""A real service on the scripted engine in this process, on a free port, for the typed client to talk to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from localllm.cli.binding import bind
from localllm.cli.serve import serve_on
from localllm.client.client import Client
from localllm.client.connect import connect
from localllm.core.control import ShutdownRequest
from localllm.hub.store import Store
from localllm.service.background import Background
from localllm.settings.load import load_settings
from localllm.settings.paths import Paths
from tests.support.fixed_planning import FixedPlanning
from tests.support.scripted_engine import ScriptedEngine
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.until import until


@dataclass
class Live:
    """The service's test handles: ``engine`` takes scripts, ``client`` asks."""

    paths: Paths
    engine: ScriptedEngine
    client: Client


@pytest.fixture
async def live(paths: Paths) -> AsyncIterator[Live]:
    """With one model, ``demo``."""
    paths.data_dir.mkdir(parents=True)
    model = write_tiny_gguf(paths.data_dir / "tiny.gguf", "llama")
    Store(paths.store_dir).import_file(model, name="demo", mode="reference")
    engine = ScriptedEngine()
    loaded = load_settings(paths, {}, {"server.port": 0})
    listener = bind("127.0.0.1", 0, paths)

    async def serve() -> None:
        with listener:
            await serve_on(listener, paths, loaded, engines={"scripted": engine}, planning=FixedPlanning())

    async with Background() as background:
        service = background.spawn(serve(), name="the service under test")
        await until(lambda: paths.identity_file.exists() or service.done())
        async with await connect(paths, start=False) as client:
            yield Live(paths, engine, client)
            if not service.done():
                await client.shutdown(ShutdownRequest(drain_seconds=0))
        await until(service.done, within_s=20)
