"""Routes about chats. Replies are written by the service; a stream only watches one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response

from localllm.api.control.wire import answer, read, stream, text
from localllm.core.control import ChatList, ChatPatch, RegenerateRequest, Removed, SendRequest
from localllm.service.runtime import Runtime


class ChatRoutes:
    def __init__(self, runtime: Runtime) -> None:
        self._chats = runtime.chats

    async def list(self, request: Request) -> Response:
        return answer(ChatList(await self._chats.list(request.query_params.get("query", ""))))

    async def create(self, request: Request) -> Response:
        return answer(await self._chats.create(await read(request, ChatPatch)))

    async def detail(self, request: Request) -> Response:
        return answer(await self._chats.detail(_id(request)))

    async def patch(self, request: Request) -> Response:
        return answer(await self._chats.patch(_id(request), await read(request, ChatPatch)))

    async def delete(self, request: Request) -> Response:
        await self._chats.delete(_id(request))
        return answer(Removed(name=_id(request)))

    async def send(self, request: Request) -> Response:
        return answer(await self._chats.send(_id(request), await read(request, SendRequest)))

    async def regenerate(self, request: Request) -> Response:
        return answer(await self._chats.regenerate(_id(request), await read(request, RegenerateRequest)))

    async def stop(self, request: Request) -> Response:
        return answer(await self._chats.stop(_id(request)))

    async def watch(self, request: Request) -> Response:
        chat_id, message_id = _id(request), request.query_params.get("message_id")
        await self._chats.check_watchable(chat_id, message_id)
        return stream(self._events(chat_id, message_id))

    async def export(self, request: Request) -> Response:
        return text(await self._chats.export(_id(request)), "text/markdown")

    async def _events(
        self, chat_id: str, message_id: str | None
    ) -> AsyncGenerator[tuple[str, object] | None, None]:
        async with aclosing(self._chats.watch(chat_id, message_id)) as events:
            async for event in events:
                yield None if event is None else ("reply", event)


def _id(request: Request) -> str:
    return str(request.path_params["id"])
