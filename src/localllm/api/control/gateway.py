"""Routes about the port's named keys, its policies and the audit log."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from localllm.api.control.wire import answer, flag, read
from localllm.core.control import Removed
from localllm.core.gateway import KeyList, KeyRequest
from localllm.service.runtime import Runtime


class GatewayRoutes:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def keys(self, request: Request) -> Response:
        return answer(KeyList(self._runtime.keys.all()))

    async def create_key(self, request: Request) -> Response:
        wish = await read(request, KeyRequest)
        return answer(await asyncio.to_thread(self._runtime.keys.create, wish))

    async def revoke_key(self, request: Request) -> Response:
        name = str(request.path_params["name"])
        await asyncio.to_thread(self._runtime.keys.revoke, name, forget=flag(request, "forget"))
        return answer(Removed(name=name))

    async def gateway(self, request: Request) -> Response:
        return answer(self._runtime.gateway.view())

    async def audit(self, request: Request) -> Response:
        return answer(await self._runtime.gateway.audit())
