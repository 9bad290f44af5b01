"""Routes about getting and keeping models: search, a close look, pulls under way, checking and cleaning the store."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from localllm.api.control.wire import answer, number, read
from localllm.core.control import DownloadLimit, PullRequest
from localllm.core.errors import BadRequest
from localllm.service.runtime import Runtime
from localllm.service.upkeep import collect, start_verify

_MAX_QUERY_CHARS = 200


class DownloadRoutes:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def search(self, request: Request) -> Response:
        query = request.query_params.get("query", "").strip()
        if not query or len(query) > _MAX_QUERY_CHARS:
            raise BadRequest(f"query must have 1 to {_MAX_QUERY_CHARS} characters.", param="query")
        limit = number(request, "limit", int, 20, 1, 100)
        return answer(await self._runtime.downloads.prospects.search(query, limit=limit or 20))

    async def preview(self, request: Request) -> Response:
        return answer(await self._runtime.downloads.prospects.preview(await read(request, PullRequest)))

    async def pull(self, request: Request) -> Response:
        return answer(await self._runtime.downloads.start(await read(request, PullRequest)))

    async def act(self, request: Request) -> Response:
        pull_id, action = request.path_params["id"], request.path_params["action"]
        match action:
            case "pause":
                return answer(await self._runtime.downloads.pause(pull_id))
            case "resume":
                return answer(await self._runtime.downloads.resume(pull_id))
            case "cancel":
                return answer(await self._runtime.downloads.cancel(pull_id))
            case _:
                raise BadRequest("action must be pause, resume or cancel.", param="action")

    async def limit(self, request: Request) -> Response:
        wish = await read(request, DownloadLimit)
        if wish.bytes_per_second is not None and wish.bytes_per_second < 1:
            raise BadRequest("bytes_per_second must be at least 1.", param="bytes_per_second")
        self._runtime.downloads.limit(wish.bytes_per_second)
        return answer(wish)

    async def verify(self, request: Request) -> Response:
        runtime = self._runtime
        model = runtime.manager.resolve(request.path_params["name"])
        return answer(start_verify(runtime.tasks, runtime.store, model))

    async def collect(self, request: Request) -> Response:
        return answer(await collect(self._runtime.store, self._runtime.downloads))
