"""Chats: trees of messages whose replies are written by the service, so that no client has to stay for them.

The user's turn is stored before anything is generated. A reply is stored every second while it grows; what a crash,
a stop or a dead engine leaves is kept and marked partial.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from localllm.core.control import (
    ChatDetail,
    ChatMessage,
    ChatPatch,
    ChatSettings,
    ChatSummary,
    RegenerateRequest,
    ReplyEvent,
    SendRequest,
    Sent,
)
from localllm.core.errors import BadRequest, Cancelled, Conflict, LocalLLMError, NotFound
from localllm.core.generation import ChatPrompt, GenerationRequest, Message, Sampling
from localllm.service.background import Background
from localllm.service.chat_markdown import to_markdown
from localllm.service.chat_store import ChatStore, StoredChat
from localllm.service.pipeline import Call, Pipeline
from localllm.service.replies import Reply, write_reply

NEW_TITLE = "New chat"
_TITLE_LENGTH = 60
_MAX_CONTENT_CHARS = 4_000_000
_ENDED_KEPT = 32


class Chats:
    """``revision`` grows with each change of the list, so that whoever shows it knows to ask again."""

    def __init__(
        self,
        store: ChatStore,
        pipeline: Pipeline,
        background: Background,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.revision = 0
        self._store = store
        self._pipeline = pipeline
        self._background = background
        self._on_change = on_change
        self._replies: dict[str, Reply] = {}
        self._ended: dict[str, Reply] = {}

    # ------------------------------------------------------------ the list and the tree

    async def list(self, query: str = "") -> tuple[ChatSummary, ...]:
        return await self._store.summaries(query)

    async def create(self, patch: ChatPatch) -> ChatDetail:
        now = time.time()
        chat = StoredChat(
            id=secrets.token_hex(8),
            title=_one_line(patch.title or NEW_TITLE),
            titled=bool(patch.title),
            created_at=now,
            updated_at=now,
            settings=patch.settings or ChatSettings(),
            leaf_id=None,
        )
        await self._store.create(chat)
        self._list_changed()
        return await self.detail(chat.id)

    async def detail(self, chat_id: str) -> ChatDetail:
        """The whole chat, with replies that are being written as they stand. Raises NotFound."""
        chat = await self._store.get(chat_id)
        messages = tuple(self._as_it_stands(m) for m in await self._store.messages(chat_id))
        return ChatDetail(
            summary=ChatSummary(
                id=chat.id,
                title=chat.title,
                updated_at=chat.updated_at,
                model=chat.settings.model,
                message_count=len(messages),
            ),
            settings=chat.settings,
            messages=messages,
            leaf_id=chat.leaf_id,
        )

    async def patch(self, chat_id: str, patch: ChatPatch) -> ChatDetail:
        """Change title, settings or the branch that is shown. Raises NotFound."""
        chat = await self._store.get(chat_id)
        if patch.title is not None:
            title = _one_line(patch.title)
            chat = replace(chat, title=title or NEW_TITLE, titled=bool(title))
        if patch.settings is not None:
            chat = replace(chat, settings=patch.settings)
        if patch.leaf_id is not None:
            _find(await self._store.messages(chat_id), patch.leaf_id)
            chat = replace(chat, leaf_id=patch.leaf_id)
        await self._store.save(chat)
        self._list_changed()
        return await self.detail(chat_id)

    async def delete(self, chat_id: str) -> None:
        """Delete a chat; a reply that is being written ends. Raises NotFound."""
        await self._store.get(chat_id)
        await self._end_replies(chat_id)
        await self._store.delete(chat_id)
        self._list_changed()

    async def export(self, chat_id: str) -> str:
        """The branch that is shown, as Markdown. Raises NotFound."""
        detail = await self.detail(chat_id)
        return to_markdown(detail, path_to(detail.messages, detail.leaf_id))

    # ------------------------------------------------------------ replies

    async def send(self, chat_id: str, request: SendRequest) -> Sent:
        """Store the user's turn and begin a reply to it.

        Raises:
            NotFound, BadRequest, Conflict: no such chat or parent, nothing said, or a reply is being written.
        """
        if not request.content.strip():
            raise BadRequest("There is nothing to send.", param="content")
        if len(request.content) > _MAX_CONTENT_CHARS:
            raise BadRequest("The message is longer than 4,000,000 characters.", param="content")
        chat = await self._store.get(chat_id)
        self._refuse_second_reply(chat_id)
        messages = await self._store.messages(chat_id)
        parent_id = chat.leaf_id if request.parent_id is None else request.parent_id or None
        if parent_id is not None:
            _find(messages, parent_id)
        turn = ChatMessage(
            id=secrets.token_hex(8),
            parent_id=parent_id,
            role="user",
            content=request.content,
            created_at=time.time(),
        )
        if not chat.titled and chat.title == NEW_TITLE:
            chat = replace(chat, title=_title_of(request.content))
        reply_id = await self._begin_reply(chat, (*path_to(messages, parent_id), turn), new=(turn,))
        return Sent(user_message_id=turn.id, reply_id=reply_id)

    async def regenerate(self, chat_id: str, request: RegenerateRequest) -> Sent:
        """Begin another reply: beside an assistant's message, or after a user's.

        Raises:
            NotFound, BadRequest, Conflict: as ``send``.
        """
        chat = await self._store.get(chat_id)
        self._refuse_second_reply(chat_id)
        messages = await self._store.messages(chat_id)
        found = _find(messages, request.message_id)
        turn_id = found.id if found.role == "user" else found.parent_id
        if turn_id is None:
            raise BadRequest("There is no user message before that one.", param="message_id")
        reply_id = await self._begin_reply(chat, path_to(messages, turn_id), new=())
        return Sent(user_message_id=None, reply_id=reply_id)

    async def stop(self, chat_id: str) -> ChatDetail:
        """End the reply that is being written, keeping what there is of it. Raises NotFound."""
        await self._store.get(chat_id)
        await self._end_replies(chat_id)
        return await self.detail(chat_id)

    async def watch(
        self, chat_id: str, message_id: str | None = None
    ) -> AsyncGenerator[ReplyEvent | None, None]:
        """A reply from its beginning to its end; one that has ended already is given whole.

        ``message_id`` None = the chat's leaf. None is yielded in a long silence. Raises NotFound.
        """
        chat = await self._store.get(chat_id)
        wanted = message_id or chat.leaf_id or ""
        # who attaches a moment too late still gets the code and the hint of a failure
        reply = self._replies.get(wanted) or self._ended.get(wanted)
        if reply is not None:
            async with aclosing(reply.watch()) as events:
                async for event in events:
                    yield event
            return
        message = _find(await self._store.messages(chat_id), wanted)
        yield ReplyEvent(kind="so_far", message=message)
        yield ReplyEvent(kind="done", message=message)

    async def check_watchable(self, chat_id: str, message_id: str | None) -> None:
        """Raise NotFound now, while the answer can still have a status, rather than in the stream."""
        chat = await self._store.get(chat_id)
        wanted = message_id or chat.leaf_id or ""
        if wanted not in self._replies:
            _find(await self._store.messages(chat_id), wanted)

    async def _begin_reply(
        self, chat: StoredChat, path: Sequence[ChatMessage], *, new: Sequence[ChatMessage]
    ) -> str:
        message = ChatMessage(
            id=secrets.token_hex(8),
            parent_id=path[-1].id,
            role="assistant",
            content="",
            state="streaming",
            created_at=time.time(),
            model=chat.settings.model,
        )
        chat = replace(chat, leaf_id=message.id, updated_at=time.time())
        reply = Reply(chat.id, message, save=lambda so_far: self._store.save_soon(chat.id, so_far))
        self._replies[message.id] = reply
        try:
            await self._store.add_turn(chat, (*new, message))
            call = Call(
                id=f"chat-{message.id}",
                endpoint="chat",
                model=chat.settings.model or "",
                request=_request(f"chat-{message.id}", chat.settings, path),
                client="chat",
                stream=True,
                on_waiting=reply.waiting,
                on_finished=reply.finished,
            )
            reply.task = self._background.spawn(self._write(reply, call), name=f"reply {message.id}")
        except BaseException:
            self._replies.pop(message.id, None)
            raise
        self._list_changed()
        return message.id

    async def _write(self, reply: Reply, call: Call) -> None:
        error: LocalLLMError | None = Cancelled("The service stopped while this was being written.")
        try:
            error = await write_reply(reply, self._pipeline.generate(call))
        finally:
            self._close(reply, error)

    def _close(self, reply: Reply, error: LocalLLMError | None) -> None:
        message = reply.end(error)
        self._store.finish_soon(reply.chat_id, message)
        self._ended[message.id] = self._replies.pop(message.id)
        if len(self._ended) > _ENDED_KEPT:
            del self._ended[next(iter(self._ended))]
        self._list_changed()

    async def _end_replies(self, chat_id: str) -> None:
        for reply in [r for r in self._replies.values() if r.chat_id == chat_id]:
            await reply.stop()
            if reply.message.id in self._replies:  # stopped before it wrote its first line
                self._close(reply, None)

    def _refuse_second_reply(self, chat_id: str) -> None:
        if any(reply.chat_id == chat_id for reply in self._replies.values()):
            raise Conflict("A reply is still being written in this chat.", hint="Wait for it, or stop it.")

    def _as_it_stands(self, message: ChatMessage) -> ChatMessage:
        reply = self._replies.get(message.id)
        return reply.message if reply is not None else message

    def _list_changed(self) -> None:
        self.revision += 1
        self._on_change()


def path_to(messages: Sequence[ChatMessage], leaf_id: str | None) -> tuple[ChatMessage, ...]:
    """From the root to ``leaf_id``; () for None. A tree with a cycle (a damaged file) ends where it closes."""
    by_id = {message.id: message for message in messages}
    path: list[ChatMessage] = []
    while leaf_id is not None and (message := by_id.pop(leaf_id, None)) is not None:
        path.append(message)
        leaf_id = message.parent_id
    return tuple(reversed(path))


def _request(request_id: str, settings: ChatSettings, path: Sequence[ChatMessage]) -> GenerationRequest:
    said = [Message(role=m.role, content=m.content) for m in path if m.role == "user" or m.content]
    system = [Message(role="system", content=settings.system)] if settings.system else []
    return GenerationRequest(
        request_id=request_id,
        prompt=ChatPrompt(messages=(*system, *said)),
        sampling=Sampling(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
            seed=settings.seed,
        ),
        max_tokens=settings.max_tokens,
    )


def _find(messages: Sequence[ChatMessage], message_id: str) -> ChatMessage:
    for message in messages:
        if message.id == message_id:
            return message
    raise NotFound(f"There is no message {message_id!r} in this chat.", param="message_id")


def _title_of(content: str) -> str:
    """The first line that says something, cut at a word."""
    first = next((line for line in content.splitlines() if line.strip()), "")
    return _one_line(first) or NEW_TITLE


def _one_line(text: str) -> str:
    line = " ".join("".join(ch if ch.isprintable() else " " for ch in text).split())
    if len(line) <= _TITLE_LENGTH:
        return line
    return line[:_TITLE_LENGTH].rsplit(" ", 1)[0].rstrip(" ,.;:") + "…"
