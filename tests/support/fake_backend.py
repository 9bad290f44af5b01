"""A service in memory for the terminal app: it answers at once, remembers what it was asked, and can break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec

from localllm.core import control
from localllm.core.errors import LocalLLMError, NotFound, NotRunning
from tests.support import sample_state as sample


class FakeBackend:
    """Implements `tui.backend.Backend`. ``calls`` lists what was asked; ``fail_with`` makes the next call raise.

    Replies are scripted: `say` feeds the reply that is being written, `finish` ends it. Nothing sleeps.
    """

    def __init__(
        self, state: control.State = sample.STATE, chats: tuple[control.ChatDetail, ...] = (sample.CHAT,)
    ) -> None:
        self.state = state
        self.details = {chat.summary.id: chat for chat in chats}
        self.summaries = list(sample.CHATS if chats else ())
        self.calls: list[tuple[str, Any]] = []
        self.fail_with: LocalLLMError | None = None
        self.entries = sample.config_entries()
        self.down: str | None = None
        self.closed = False
        self.startable = False
        self._listeners: list[asyncio.Queue[control.State | control.StateDelta | None]] = []
        self._replies: dict[str, list[asyncio.Queue[control.ReplyEvent]]] = {}

    # ------------------------------------------------------------ scripting

    def change(self, **sections: Any) -> None:
        """Change sections of the state and tell every listener."""
        self.state = msgspec.structs.replace(self.state, **sections)
        for queue in self._listeners:
            queue.put_nowait(control.StateDelta(**sections))

    def cut(self, reason: str = "connection refused") -> None:
        """Lose the line: event streams end, every call fails until `mend`."""
        self.down = reason
        for queue in self._listeners:
            queue.put_nowait(None)

    def mend(self) -> None:
        self.down = None

    def say(self, message_id: str, text: str = "", *, reasoning: str | None = None) -> None:
        """Append to a reply and send the delta to whoever follows it."""
        self._update(
            message_id,
            lambda m: msgspec.structs.replace(
                m,
                content=m.content + text,
                reasoning=(m.reasoning or "") + reasoning if reasoning else m.reasoning,
            ),
        )
        self._tell(message_id, control.ReplyEvent(kind="delta", text=text or None, reasoning=reasoning))

    def status(self, message_id: str, words: str) -> None:
        self._tell(message_id, control.ReplyEvent(kind="status", status=words))

    def finish(self, message_id: str, **figures: Any) -> None:
        """End a reply; ``figures`` are fields of ChatMessage."""
        changes = {
            "state": "complete",
            "finish_reason": "stop",
            "tokens_per_second": 40.0,
            "ttft_ms": 150.0,
        } | figures
        self._update(message_id, lambda m: msgspec.structs.replace(m, **changes))
        self._tell(message_id, control.ReplyEvent(kind="done", message=self._message(message_id)))

    def asked(self, name: str) -> list[Any]:
        """The arguments of every call of that name."""
        return [argument for called, argument in self.calls if called == name]

    # ------------------------------------------------------------ the protocol

    async def connect(self, *, start: bool) -> FakeBackend:
        """What the app calls to find the service."""
        self.calls.append(("connect", start))
        if start and self.down is not None and self.startable:
            self.mend()
        self._check()
        return self

    async def events(self) -> AsyncIterator[control.State | control.StateDelta]:
        self._check()
        queue: asyncio.Queue[control.State | control.StateDelta | None] = asyncio.Queue()
        self._listeners.append(queue)
        try:
            yield self.state
            while (event := await queue.get()) is not None:
                yield event
            raise NotRunning(self.down or "gone")
        finally:
            self._listeners.remove(queue)

    async def reply_stream(self, chat_id: str, message_id: str) -> AsyncIterator[control.ReplyEvent]:
        self._note("reply_stream", message_id)
        queue: asyncio.Queue[control.ReplyEvent] = asyncio.Queue()
        message = self._message(message_id)
        yield control.ReplyEvent(kind="so_far", message=message)
        if message.state != "streaming":
            yield control.ReplyEvent(kind="done", message=message)
            return
        self._replies.setdefault(message_id, []).append(queue)
        try:
            while True:
                event = await queue.get()
                yield event
                if event.kind in ("done", "error"):
                    return
        finally:
            self._replies[message_id].remove(queue)

    async def model(self, name: str) -> control.ModelDetail:
        self._note("model", name)
        summary = next(m for m in self.state.models if m.name == name)
        return control.ModelDetail(
            summary=summary,
            sha256="a5fd3b62" * 8,
            licence="apache-2.0",
            source="import",
            facts={"n_layer": 36, "n_embd": 4096, "n_head": 32, "n_vocab": 151_936},
            template_source="file",
        )

    async def remove_model(self, name: str, *, force: bool = False) -> control.Removed:
        self._note("remove_model", (name, force))
        self.change(models=tuple(m for m in self.state.models if m.name != name))
        return control.Removed(name=name, freed_bytes=253_113_024)

    async def import_model(self, request: control.ImportRequest) -> control.Task:
        self._note("import_model", request)
        return control.Task(id="task-1", kind="import", title=request.path, phase=control.TaskPhase.RUNNING)

    async def search(self, query: str) -> control.SearchResults:
        self._note("search", query)
        hits = tuple(h for h in sample.HITS if query.lower() in h.title.lower())
        return control.SearchResults(hits=hits, problems=() if hits else ("Hugging Face cannot be reached.",))

    async def preview(self, request: control.PullRequest) -> control.PullPreview:
        self._note("preview", request)
        return sample.PREVIEW

    async def pull(self, request: control.PullRequest) -> control.Task:
        self._note("pull", request)
        return control.Task(
            id="task-2", kind="pull", title=request.reference, phase=control.TaskPhase.WAITING
        )

    async def steer_download(
        self, task_id: str, action: Literal["pause", "resume", "cancel"]
    ) -> control.Task:
        self._note("steer_download", (task_id, action))
        return control.Task(id=task_id, kind="pull", title="x", phase=control.TaskPhase.PAUSED)

    async def fit(
        self,
        model: str,
        *,
        context_length: int | None = None,
        kv_type: str | None = None,
        parallel: int | None = None,
    ) -> control.FitTable:
        self._note("fit", (model, context_length, kv_type))
        return sample.fit_table(model, context_length, kv_type)

    async def load(self, request: control.LoadRequest) -> control.InstanceState:
        self._note("load", request)
        instance = msgspec.structs.replace(
            sample.QWEN, model=request.model, phase=control.InstancePhase.READY
        )
        return instance

    async def unload(self, request: control.UnloadRequest) -> control.InstanceState:
        self._note("unload", request)
        return msgspec.structs.replace(
            sample.QWEN, model=request.model, phase=control.InstancePhase.UNLOADING
        )

    async def history(self, seconds: float) -> control.History:
        self._note("history", seconds)
        return sample.history(seconds)

    async def requests(self, *, limit: int = 100) -> control.RequestList:
        self._note("requests", limit)
        return control.RequestList(sample.RECORDS)

    async def chats(self, query: str | None = None) -> control.ChatList:
        self._note("chats", query)
        found = [s for s in self.summaries if not query or query.lower() in s.title.lower()]
        return control.ChatList(tuple(found))

    async def create_chat(self, patch: control.ChatPatch) -> control.ChatDetail:
        self._note("create_chat", patch)
        chat_id = f"chat-{len(self.details) + 10}"
        summary = control.ChatSummary(id=chat_id, title=patch.title or "New chat", updated_at=sample.NOW)
        detail = control.ChatDetail(
            summary=summary, settings=patch.settings or control.ChatSettings(), messages=()
        )
        self.details[chat_id] = detail
        self.summaries.insert(0, summary)
        return detail

    async def chat(self, chat_id: str) -> control.ChatDetail:
        self._note("chat", chat_id)
        if chat_id not in self.details:
            summary = next((s for s in self.summaries if s.id == chat_id), None)
            if summary is None:
                raise NotFound(f"There is no chat {chat_id}.")
            self.details[chat_id] = control.ChatDetail(
                summary=summary, settings=control.ChatSettings(), messages=()
            )
        return self.details[chat_id]

    async def update_chat(self, chat_id: str, patch: control.ChatPatch) -> control.ChatDetail:
        self._note("update_chat", patch)
        detail = self.details[chat_id]
        summary = detail.summary
        if patch.title is not None:
            summary = msgspec.structs.replace(summary, title=patch.title)
        self.details[chat_id] = msgspec.structs.replace(
            detail,
            summary=summary,
            settings=patch.settings or detail.settings,
            leaf_id=patch.leaf_id or detail.leaf_id,
        )
        return self.details[chat_id]

    async def delete_chat(self, chat_id: str) -> control.Removed:
        self._note("delete_chat", chat_id)
        self.summaries = [s for s in self.summaries if s.id != chat_id]
        self.details.pop(chat_id, None)
        return control.Removed(name=chat_id)

    async def send(self, chat_id: str, request: control.SendRequest) -> control.Sent:
        self._note("send", request)
        detail = self.details[chat_id]
        parent = detail.leaf_id if request.parent_id is None else request.parent_id or None
        number = len(detail.messages) + 1
        user = control.ChatMessage(
            id=f"u{number}",
            parent_id=parent,
            role="user",
            content=request.content,
            created_at=sample.NOW + number,
        )
        return self._begin(detail, user.id, (user,))

    async def regenerate(self, chat_id: str, request: control.RegenerateRequest) -> control.Sent:
        self._note("regenerate", request)
        detail = self.details[chat_id]
        message = self._message(request.message_id)
        parent = message.parent_id if message.role == "assistant" else message.id
        return self._begin(detail, parent, ())

    async def stop(self, chat_id: str) -> control.ChatDetail:
        self._note("stop", chat_id)
        for message in self.details[chat_id].messages:
            if message.state == "streaming":
                self.finish(message.id, state="partial", finish_reason=None)
        return self.details[chat_id]

    async def export(self, chat_id: str) -> str:
        self._note("export", chat_id)
        return f"# {self.details[chat_id].summary.title}\n"

    async def config(self) -> control.ConfigView:
        self._note("config", None)
        return control.ConfigView(path="~/.config/localllm/config.toml", entries=self.entries)

    async def set_config(self, change: control.ConfigChange) -> control.ConfigView:
        self._note("set_config", change)
        self.entries = tuple(
            msgspec.structs.replace(
                e,
                value=e.default if change.value is None else change.value,
                source="default" if change.value is None else "file",
                where=None if change.value is None else "config.toml:9",
            )
            if e.key == change.key
            else e
            for e in self.entries
        )
        return await self.config()

    async def doctor(self) -> control.DoctorReport:
        self._note("doctor", None)
        return sample.DOCTOR

    async def shutdown(self, request: control.ShutdownRequest) -> None:
        self._note("shutdown", request)

    async def aclose(self) -> None:
        self.closed = True

    # ------------------------------------------------------------ inside

    def _check(self) -> None:
        if self.down is not None:
            raise NotRunning(self.down)
        if self.fail_with is not None:
            error, self.fail_with = self.fail_with, None
            raise error

    def _note(self, name: str, argument: Any) -> None:
        self.calls.append((name, argument))
        self._check()

    def _begin(
        self, detail: control.ChatDetail, parent: str | None, before: tuple[control.ChatMessage, ...]
    ) -> control.Sent:
        number = len(detail.messages) + len(before) + 1
        reply = control.ChatMessage(
            id=f"a{number}",
            parent_id=parent,
            role="assistant",
            content="",
            state="streaming",
            created_at=sample.NOW + number,
            model="qwen3-8b",
        )
        self.details[detail.summary.id] = msgspec.structs.replace(
            detail, messages=(*detail.messages, *before, reply), leaf_id=reply.id
        )
        return control.Sent(user_message_id=before[0].id if before else None, reply_id=reply.id)

    def _message(self, message_id: str) -> control.ChatMessage:
        return next(m for d in self.details.values() for m in d.messages if m.id == message_id)

    def _update(self, message_id: str, change: Any) -> None:
        for chat_id, detail in self.details.items():
            messages = tuple(change(m) if m.id == message_id else m for m in detail.messages)
            self.details[chat_id] = msgspec.structs.replace(detail, messages=messages)

    def _tell(self, message_id: str, event: control.ReplyEvent) -> None:
        for queue in self._replies.get(message_id, ()):
            queue.put_nowait(event)
