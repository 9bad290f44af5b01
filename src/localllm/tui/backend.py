"""What the app needs from the service, and nothing more.

The real one is `localllm.client.Client`, which fits by its shape; tests have one that answers from memory.
Every method raises `LocalLLMError` when the service refuses or cannot be reached.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol

from localllm.core.control import (
    ChatDetail,
    ChatList,
    ChatPatch,
    ConfigChange,
    ConfigView,
    DoctorReport,
    FitTable,
    History,
    ImportRequest,
    InstanceState,
    LoadRequest,
    ModelDetail,
    PullPreview,
    PullRequest,
    RegenerateRequest,
    Removed,
    ReplyEvent,
    RequestList,
    SearchResults,
    SendRequest,
    Sent,
    ShutdownRequest,
    State,
    StateDelta,
    Task,
    UnloadRequest,
)


class Backend(Protocol):
    """One service, local or remote."""

    def events(self) -> AsyncIterator[State | StateDelta]:
        """A snapshot, then what changes, until the line is lost (raises) or the service ends it (returns)."""
        ...

    def reply_stream(self, chat_id: str, message_id: str) -> AsyncIterator[ReplyEvent]:
        """The reply so far, then its growth; ends after ``done`` or ``error``."""
        ...

    async def model(self, name: str) -> ModelDetail: ...

    async def remove_model(self, name: str, *, force: bool = False) -> Removed: ...

    async def import_model(self, request: ImportRequest) -> Task: ...

    async def search(self, query: str) -> SearchResults: ...

    async def preview(self, request: PullRequest) -> PullPreview: ...

    async def pull(self, request: PullRequest) -> Task: ...

    async def steer_download(self, task_id: str, action: Literal["pause", "resume", "cancel"]) -> Task: ...

    async def fit(
        self,
        model: str,
        *,
        context_length: int | None = None,
        kv_type: str | None = None,
        parallel: int | None = None,
    ) -> FitTable: ...

    async def load(self, request: LoadRequest) -> InstanceState: ...

    async def unload(self, request: UnloadRequest) -> InstanceState: ...

    async def history(self, seconds: float) -> History: ...

    async def requests(self, *, limit: int = 100) -> RequestList: ...

    async def chats(self, query: str | None = None) -> ChatList: ...

    async def create_chat(self, patch: ChatPatch) -> ChatDetail: ...

    async def chat(self, chat_id: str) -> ChatDetail: ...

    async def update_chat(self, chat_id: str, patch: ChatPatch) -> ChatDetail: ...

    async def delete_chat(self, chat_id: str) -> Removed: ...

    async def send(self, chat_id: str, request: SendRequest) -> Sent: ...

    async def regenerate(self, chat_id: str, request: RegenerateRequest) -> Sent: ...

    async def stop(self, chat_id: str) -> ChatDetail: ...

    async def export(self, chat_id: str) -> str: ...

    async def config(self) -> ConfigView: ...

    async def set_config(self, change: ConfigChange) -> ConfigView: ...

    async def doctor(self) -> DoctorReport: ...

    async def shutdown(self, request: ShutdownRequest) -> object: ...

    async def aclose(self) -> None: ...
