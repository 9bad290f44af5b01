"""The port with everything real but the engine, the planner and the files: a scripted engine answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp

from localllm.api.app import gated, port_routes
from localllm.api.errors import status_of
from localllm.api.protocol import PortProtocol
from localllm.core.config import GatewaySettings, ModelSettings, ServerSettings, Settings
from localllm.core.control import Identity, RequestRecord
from localllm.core.errors import ModelNotFound
from localllm.core.generation import Sampling
from localllm.hub.store import StoredModel
from localllm.service.activity import Activity
from localllm.service.background import Background
from localllm.service.gateway.chain import Gateway
from localllm.service.history import HistoryRing
from localllm.service.keys import Keys
from localllm.service.manager import Manager
from localllm.service.pipeline import Pipeline
from localllm.service.runtime import Runtime
from localllm.service.sampler import ServiceSampler
from localllm.service.stored_responses import StoredResponses
from tests.support.fixed_planning import FixedPlanning
from tests.support.scripted_engine import ScriptedEngine

MODEL = "tiny:Q4_K_M"
ADMIN_KEY = "admin-key-of-the-tests"


def stored(name: str) -> StoredModel:
    return StoredModel(
        name=name,
        path=Path(__file__),
        size_bytes=1234,
        sha256=None,
        quant="Q4_K_M",
        architecture="llama",
        parameters=1000,
        trained_context_length=8192,
        capabilities=("chat", "completion"),
        chat_template=None,
        stop=(),
        sampling=Sampling(),
        licence=None,
        source=None,
        owner="localllm",
        added_at=1_700_000_000.5,
        mmproj_path=None,
    )


class Source:
    """Models that are only names."""

    def __init__(self, *names: str) -> None:
        self._models = {name: stored(name) for name in names}

    def list(self) -> tuple[StoredModel, ...]:
        return tuple(self._models.values())

    def get(self, name: str) -> StoredModel:
        if name not in self._models:
            raise ModelNotFound(name, near=list(self._models))
        return self._models[name]


async def until(condition: Callable[[], bool], *, within_s: float = 5.0) -> None:
    """Return as soon as ``condition`` holds; fail when it does not in time."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


class Records:
    """An observer that keeps every record."""

    def __init__(self) -> None:
        self.all: list[RequestRecord] = []

    def finished(self, record: RequestRecord, gaps_ms: object) -> None:
        self.all.append(record)


@dataclass
class PortUnderTest:
    app: ASGIApp
    runtime: Runtime
    engine: ScriptedEngine
    client: httpx.AsyncClient
    records: Records

    async def chat(self, content: str = "hello", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}], **fields}
        return await self.client.post("/v1/chat/completions", json=body)

    async def events(self, content: str = "hello", **fields: Any) -> list[Any]:
        """The data of a streamed chat's events; [DONE] as the text "[DONE]"."""
        return events_of(await self.chat(content, stream=True, **fields))


def events_of(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = response.text.split("\n\n")
    assert frames.pop() == ""
    data = [frame.removeprefix("data: ") for frame in frames if not frame.startswith(":")]
    return [each if each == "[DONE]" else json.loads(each) for each in data]


OpenPort = Callable[..., Any]


@pytest.fixture
async def open_port(tmp_path: Path) -> AsyncIterator[OpenPort]:
    """Builds ports; each takes server settings, ``default`` model, ``engine``, ``host`` and ``gateway`` settings."""
    gateways: list[Gateway] = []
    async with Background() as background:

        def build(
            *,
            engine: ScriptedEngine | None = None,
            default: str | None = None,
            host: str = "127.0.0.1",
            gateway: GatewaySettings | None = None,
            **server: Any,
        ) -> PortUnderTest:
            engine = engine or ScriptedEngine()
            records = Records()
            settings = Settings(
                server=ServerSettings(**server),
                models=ModelSettings(default=default),
                gateway=gateway or GatewaySettings(),
            )
            manager = Manager(
                source=Source(MODEL, "org/model:Q8_0"),
                engines={"scripted": engine},
                planning=FixedPlanning(context_length=512, parallel=8),
                background=background,
                default_model=default,
                queue_limit=settings.server.queue_limit,
            )
            activity = Activity()
            pipeline = Pipeline(
                manager,
                activity,
                observers=[records],
                status_of=status_of,
                max_output_tokens=settings.server.max_output_tokens,
            )
            keys = Keys(tmp_path / "state" / "keys.json")
            gateways.append(
                Gateway(
                    pipeline,
                    keys,
                    settings.gateway,
                    resolve=manager.resolve,
                    audit_folder=tmp_path / "audit",
                )
            )
            identity = Identity(version="1", nonce="n", pid=1, host=host, port=11500, started_at=0.0)
            runtime = cast(
                "Runtime",
                SimpleNamespace(
                    settings=settings,
                    identity=identity,
                    admin_key=ADMIN_KEY,
                    manager=manager,
                    pipeline=pipeline,
                    keys=keys,
                    responses=StoredResponses(),
                    gateway=gateways[-1],
                    activity=activity,
                    metrics=SimpleNamespace(render=lambda: b"# metrics\n"),
                    sampler=ServiceSampler(
                        manager,
                        activity,
                        HistoryRing(),
                        reader=lambda: SimpleNamespace(sample=tuple),
                        watched=lambda: False,
                    ),
                ),
            )
            app = gated(port_routes(runtime), runtime)
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(app=app), base_url="http://localhost:11500"
            )
            return PortUnderTest(app, runtime, engine, client, records)

        yield build
    for opened in gateways:
        opened.close()


@pytest.fixture
def port(open_port: OpenPort) -> PortUnderTest:
    opened: PortUnderTest = open_port()
    return opened


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncIterator[int]:
    """Serve ``app`` with a real uvicorn on a free port of 127.0.0.1, for what only a socket can show."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host="127.0.0.1",
            port=0,
            http=PortProtocol,
            log_level="error",
            lifespan="off",
            access_log=False,
        )
    )
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        try:
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await serving
