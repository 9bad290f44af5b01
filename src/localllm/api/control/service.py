"""Routes about the service itself: who it is, its live state, history, settings, health, logs and its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from localllm.api.control.wire import answer, number, read, stream, text
from localllm.core.control import ConfigChange, RequestList, ShutdownRequest, State
from localllm.service.doctor import examine
from localllm.service.history import COARSE_S
from localllm.service.logs import tail
from localllm.service.runtime import Runtime


class ServiceRoutes:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def identity(self, request: Request) -> Response:
        return answer(self._runtime.identity)

    async def state(self, request: Request) -> Response:
        return answer(self._runtime.hub.state())

    async def events(self, request: Request) -> Response:
        return stream(self._named_events())

    async def _named_events(self) -> AsyncGenerator[tuple[str, object] | None, None]:
        async with aclosing(self._runtime.hub.watch()) as events:
            async for event in events:
                if event is None:
                    yield None
                else:
                    yield ("snapshot" if isinstance(event, State) else "section"), event

    async def hardware(self, request: Request) -> Response:
        return answer(await self._runtime.machine.get(newer_than_s=2.0))

    async def history(self, request: Request) -> Response:
        seconds = number(request, "seconds", float, 300.0, 1.0, float(COARSE_S))
        return answer(self._runtime.history.last(seconds or 300.0, time.time()))

    async def requests(self, request: Request) -> Response:
        limit = number(request, "limit", int, 100, 1, 1000)
        before = number(request, "before", float, None, 0.0, 1e12)
        return answer(RequestList(await self._runtime.records.latest(limit=limit or 100, before=before)))

    async def request(self, request: Request) -> Response:
        return answer(await self._runtime.records.get(request.path_params["id"]))

    async def config(self, request: Request) -> Response:
        return answer(await self._runtime.configuration.view())

    async def set_config(self, request: Request) -> Response:
        return answer(await self._runtime.configuration.change(await read(request, ConfigChange)))

    async def doctor(self, request: Request) -> Response:
        return answer(await examine(self._runtime))

    async def logs(self, request: Request) -> Response:
        lines = number(request, "lines", int, 200, 1, 10_000)
        return text(await asyncio.to_thread(tail, self._runtime.paths.service_log, lines or 200))

    async def shutdown(self, request: Request) -> Response:
        wish = await read(request, ShutdownRequest)
        self._runtime.shutdown.request(max(0.0, min(wish.drain_seconds, 3600.0)), restart=wish.restart)
        return answer(self._runtime.identity)
