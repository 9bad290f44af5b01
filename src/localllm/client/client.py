"""Everything the service can be asked over its control namespace, typed: what the terminal app and the verbs use.

Each method is one route of ``core/control.py`` and raises what the service raised there. ``connect.py`` finds or
starts a service and gives one of these.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Literal, Self, TypeVar
from urllib.parse import quote

import msgspec

from localllm.client.transport import PATIENT, Transport, decode_error
from localllm.core.aliases import Alias, AliasList, Route, RouteQuestion, Targets
from localllm.core.control import (
    ChatDetail,
    ChatList,
    ChatPatch,
    Collected,
    ConfigChange,
    ConfigView,
    DoctorReport,
    DownloadLimit,
    FitTable,
    History,
    Identity,
    ImportRequest,
    InstanceState,
    LoadRequest,
    ModelDetail,
    ModelList,
    PullPreview,
    PullRequest,
    RegenerateRequest,
    Removed,
    ReplyEvent,
    RequestList,
    RequestRecord,
    SearchResults,
    SendRequest,
    Sent,
    ShutdownRequest,
    State,
    StateDelta,
    Task,
    TaskPhase,
    UnloadRequest,
)
from localllm.core.errors import NotRunning
from localllm.core.gateway import AuditReport, GatewayView, KeyCreated, KeyList, KeyRequest
from localllm.core.machine import Machine

T = TypeVar("T")

_ENDED = (TaskPhase.DONE, TaskPhase.FAILED, TaskPhase.CANCELLED)


class Client:
    """One service, local or remote; an async context manager."""

    def __init__(self, base_url: str, key: str | None = None) -> None:
        self.base_url = base_url
        self.key = key
        self._transport = Transport(base_url, key)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._transport.aclose()

    # ------------------------------------------------------------ the service

    async def identity(self) -> Identity:
        return await self._get(Identity, "/identity")

    async def state(self) -> State:
        return await self._get(State, "/state")

    async def events(self) -> AsyncGenerator[State | StateDelta, None]:
        """A snapshot, then what changes, until the service ends it (returns) or the line is lost (NotRunning)."""
        async with aclosing(self._transport.events("GET", _PREFIX + "/events")) as events:
            async for event in events:
                shape: type[State | StateDelta] = State if event.name == "snapshot" else StateDelta
                yield msgspec.json.decode(event.data, type=shape)

    async def hardware(self) -> Machine:
        return await self._get(Machine, "/hardware")

    async def history(self, seconds: float = 300.0) -> History:
        return await self._get(History, "/history", seconds=seconds)

    async def requests(self, *, limit: int = 100, before: float | None = None) -> RequestList:
        return await self._get(RequestList, "/requests", limit=limit, before=before)

    async def request(self, request_id: str) -> RequestRecord:
        return await self._get(RequestRecord, f"/requests/{_path(request_id)}")

    async def config(self) -> ConfigView:
        return await self._get(ConfigView, "/config")

    async def set_config(self, change: ConfigChange) -> ConfigView:
        return await self._send(ConfigView, "PUT", "/config", change)

    async def doctor(self) -> DoctorReport:
        return await self._get(DoctorReport, "/doctor")

    async def logs(self, *, lines: int = 200) -> str:
        return await self._transport.text(_PREFIX + "/logs", query={"lines": lines})

    async def keys(self) -> KeyList:
        return await self._get(KeyList, "/keys")

    async def create_key(self, request: KeyRequest) -> KeyCreated:
        """Make a named key; the answer is the only place where it stands in full."""
        return await self._send(KeyCreated, "POST", "/keys", request)

    async def revoke_key(self, name: str, *, forget: bool = False) -> Removed:
        path = f"{_PREFIX}/keys/{_path(name)}"
        return await self._transport.call(Removed, "DELETE", path, query={"forget": int(forget)})

    async def gateway(self) -> GatewayView:
        return await self._get(GatewayView, "/gateway")

    async def audit(self) -> AuditReport:
        """Have the whole audit log checked, however long it is."""
        return await self._transport.call(AuditReport, "GET", _PREFIX + "/audit", timeout=PATIENT)

    async def shutdown(self, request: ShutdownRequest) -> Identity:
        """Ask the service to stop; returns at once, while it drains."""
        return await self._send(Identity, "POST", "/shutdown", request)

    # ------------------------------------------------------------ models

    async def models(self) -> ModelList:
        return await self._get(ModelList, "/models")

    async def model(self, name: str) -> ModelDetail:
        return await self._get(ModelDetail, f"/models/{_path(name)}")

    async def remove_model(self, name: str, *, force: bool = False) -> Removed:
        path = f"{_PREFIX}/models/{_path(name)}"
        return await self._transport.call(Removed, "DELETE", path, query={"force": int(force)})

    async def import_model(self, request: ImportRequest) -> Task:
        """Begin an import; ``follow_task`` tells how it goes."""
        return await self._send(Task, "POST", "/import", request)

    async def search(self, query: str, *, limit: int = 20) -> SearchResults:
        return await self._transport.call(
            SearchResults, "GET", _PREFIX + "/search", query={"query": query, "limit": limit}, timeout=PATIENT
        )

    async def preview(self, request: PullRequest) -> PullPreview:
        """What a pull would fetch; asks the source, so it takes as long as the line does."""
        return await self._send(PullPreview, "POST", "/preview", request)

    async def pull(self, request: PullRequest) -> Task:
        """Begin a pull, or go on with the one of that model; ``follow_task`` tells how it goes."""
        return await self._send(Task, "POST", "/pull", request)

    async def steer_download(self, task_id: str, action: Literal["pause", "resume", "cancel"]) -> Task:
        return await self._send(Task, "POST", f"/downloads/{_path(task_id)}/{action}", {})

    async def limit_downloads(self, limit: DownloadLimit) -> DownloadLimit:
        return await self._send(DownloadLimit, "PUT", "/downloads/limit", limit)

    async def aliases(self) -> AliasList:
        return await self._get(AliasList, "/aliases")

    async def set_alias(self, name: str, targets: Targets) -> Alias:
        return await self._send(Alias, "PUT", f"/aliases/{_path(name)}", targets)

    async def roll_back_alias(self, name: str) -> Alias:
        return await self._send(Alias, "POST", f"/rollback/{_path(name)}", {})

    async def remove_alias(self, name: str) -> Removed:
        return await self._transport.call(Removed, "DELETE", f"{_PREFIX}/aliases/{_path(name)}")

    async def route(self, question: RouteQuestion) -> Route:
        """Where a text would go, without sending it."""
        return await self._send(Route, "POST", "/route", question)

    async def verify(self, model: str) -> Task:
        """Begin to read the model's files again; ``follow_task`` tells how it goes."""
        return await self._send(Task, "POST", f"/verify/{_path(model)}", {})

    async def collect(self) -> Collected:
        """Delete what no model and no pull needs."""
        return await self._send(Collected, "POST", "/collect", {})

    async def follow_task(self, task: Task) -> AsyncIterator[Task]:
        """The task each time it changes, to its end. The last one may be failed: its ``error`` says why.

        Raises:
            NotRunning: the service ended before the task did.
        """
        async with aclosing(self.events()) as events:
            async for event in events:
                now = next((t for t in event.tasks or () if t.id == task.id), None)
                if now is not None and now != task:
                    task = now
                    yield task
                if task.phase in _ENDED:
                    return
        raise NotRunning("The service ended before the task did.", hint="See why with: localllm logs")

    async def fit(
        self,
        model: str,
        *,
        context_length: int | None = None,
        kv_type: str | None = None,
        parallel: int | None = None,
    ) -> FitTable:
        return await self._get(
            FitTable, "/fit", model=model, context_length=context_length, kv_type=kv_type, parallel=parallel
        )

    async def load(
        self, request: LoadRequest, on_progress: Callable[[Task], None] | None = None
    ) -> InstanceState:
        """Load a model and return when it is ready; ``on_progress`` hears how far it is (a task in percent)."""
        path = _PREFIX + "/load"
        async with aclosing(
            self._transport.events("POST", path, body=request, query={"stream": 1})
        ) as events:
            async for event in events:
                if event.name == "instance":
                    return msgspec.json.decode(event.data, type=InstanceState)
                if event.name == "error":
                    raise decode_error(event.data)
                if on_progress is not None:
                    on_progress(msgspec.json.decode(event.data, type=Task))
        raise NotRunning("The service ended while the model was loading.", hint="localllm logs")

    async def unload(self, request: UnloadRequest) -> InstanceState:
        return await self._send(InstanceState, "POST", "/unload", request)

    # ------------------------------------------------------------ chats

    async def chats(self, query: str | None = None) -> ChatList:
        return await self._get(ChatList, "/chats", query=query)

    async def create_chat(self, patch: ChatPatch) -> ChatDetail:
        return await self._send(ChatDetail, "POST", "/chats", patch)

    async def chat(self, chat_id: str) -> ChatDetail:
        return await self._get(ChatDetail, f"/chats/{_path(chat_id)}")

    async def update_chat(self, chat_id: str, patch: ChatPatch) -> ChatDetail:
        return await self._send(ChatDetail, "PATCH", f"/chats/{_path(chat_id)}", patch)

    async def delete_chat(self, chat_id: str) -> Removed:
        return await self._transport.call(Removed, "DELETE", f"{_PREFIX}/chats/{_path(chat_id)}")

    async def send(self, chat_id: str, request: SendRequest) -> Sent:
        return await self._send(Sent, "POST", f"/chats/{_path(chat_id)}/send", request)

    async def regenerate(self, chat_id: str, request: RegenerateRequest) -> Sent:
        return await self._send(Sent, "POST", f"/chats/{_path(chat_id)}/regenerate", request)

    async def stop(self, chat_id: str) -> ChatDetail:
        return await self._send(ChatDetail, "POST", f"/chats/{_path(chat_id)}/stop", {})

    async def reply_stream(
        self, chat_id: str, message_id: str | None = None
    ) -> AsyncGenerator[ReplyEvent, None]:
        """The reply so far, then its growth; ends after ``done`` or ``error``."""
        path = f"{_PREFIX}/chats/{_path(chat_id)}/stream"
        async with aclosing(self._transport.events("GET", path, query={"message_id": message_id})) as events:
            async for event in events:
                yield msgspec.json.decode(event.data, type=ReplyEvent)

    async def export(self, chat_id: str) -> str:
        return await self._transport.text(f"{_PREFIX}/chats/{_path(chat_id)}/export")

    # ------------------------------------------------------------ the port

    async def stream_completion(self, body: dict[str, object]) -> AsyncGenerator[dict[str, object], None]:
        """Chunks of ``POST /v1/chat/completions`` with ``stream``, as any OpenAI client gets them.

        Raises:
            LocalLLMError: what the port answered, before or in the stream.
        """
        path = "/v1/chat/completions"
        async with aclosing(self._transport.events("POST", path, body={**body, "stream": True})) as events:
            async for event in events:
                if event.data == "[DONE]":
                    return
                chunk = msgspec.json.decode(event.data, type=dict[str, object])
                if "error" in chunk:
                    raise decode_error(msgspec.json.encode(chunk["error"]).decode())
                yield chunk
        raise NotRunning("The stream ended before the answer did.", hint="localllm logs")

    # ------------------------------------------------------------ how

    async def _get(self, shape: type[T], path: str, **query: object) -> T:
        return await self._transport.call(shape, "GET", _PREFIX + path, query=query)

    async def _send(self, shape: type[T], method: str, path: str, body: object) -> T:
        return await self._transport.call(shape, method, _PREFIX + path, body=body, timeout=PATIENT)


_PREFIX = "/localllm"


def _path(part: str) -> str:
    """Safe inside a path; ``/`` and ``:`` stay, since model names have them.

    ``.`` and ``..`` between slashes are escaped, or the path would be shortened to that of another route on its way.
    """
    pieces = quote(part, safe="/:").split("/")
    return "/".join(piece.replace(".", "%2E") if piece in (".", "..") else piece for piece in pieces)
