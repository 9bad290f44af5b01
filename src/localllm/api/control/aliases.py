"""Routes about aliases: the table, its changes, and a dry run of where a text would go."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from localllm.api.control.wire import answer, read
from localllm.core.aliases import AliasList, Question, RouteQuestion, Targets
from localllm.core.control import Removed
from localllm.core.errors import BadRequest, ModelNotFound
from localllm.service.runtime import Runtime


class AliasRoutes:
    def __init__(self, runtime: Runtime) -> None:
        self._aliases = runtime.aliases

    async def list(self, request: Request) -> Response:
        return answer(AliasList(self._aliases.all()))

    async def set(self, request: Request) -> Response:
        return answer(self._aliases.set(request.path_params["name"], await read(request, Targets)))

    async def rollback(self, request: Request) -> Response:
        return answer(self._aliases.rollback(request.path_params["name"]))

    async def remove(self, request: Request) -> Response:
        name = request.path_params["name"]
        self._aliases.remove(name)
        return answer(Removed(name=name))

    async def route(self, request: Request) -> Response:
        asked = await read(request, RouteQuestion)
        name = asked.alias or self._only()
        route = self._aliases.route(name, Question(text=asked.text, tools=asked.tools))
        if route is None:
            raise ModelNotFound(name, hint="It is no alias. See them with: localllm alias list")
        return answer(route)

    def _only(self) -> str:
        names = [alias.name for alias in self._aliases.all()]
        if len(names) != 1:
            raise BadRequest(
                f"Which alias? There are {len(names)}.",
                hint="Name one of: localllm alias list",
                param="alias",
            )
        return names[0]
