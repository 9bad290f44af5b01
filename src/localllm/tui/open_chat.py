"""The chat that is open: what the service knows of it, and what can be asked of the service about it.

No widgets: the chat screen shows what this holds and calls it for every change.
"""

from __future__ import annotations

import msgspec

from localllm.core.control import (
    ChatDetail,
    ChatMessage,
    ChatPatch,
    ChatSettings,
    RegenerateRequest,
    SendRequest,
)
from localllm.tui import branches
from localllm.tui.session import Session


class OpenChat:
    """``detail`` is None for a chat that will be made by its first message; its settings wait in a draft.

    Every method that asks the service has shown the error when it answers None or False.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._draft = ChatSettings()
        self.detail: ChatDetail | None = None

    @property
    def id(self) -> str | None:
        return self.detail.summary.id if self.detail else None

    @property
    def title(self) -> str:
        return self.detail.summary.title if self.detail else "New chat"

    @property
    def settings(self) -> ChatSettings:
        return self.detail.settings if self.detail else self._draft

    @property
    def streaming(self) -> ChatMessage | None:
        """The reply on the shown branch that is being written."""
        shown = branches.shown(self.detail) if self.detail else ()
        return next((m for m in shown if m.state == "streaming"), None)

    def message(self, message_id: str | None) -> ChatMessage | None:
        messages = self.detail.messages if self.detail else ()
        return next((m for m in messages if m.id == message_id), None)

    def begin(self) -> None:
        """A new chat with the settings of this one."""
        self._draft = self.settings
        self.detail = None

    async def open(self, chat_id: str) -> bool:
        return self._take(await self._session.ask(lambda service: service.chat(chat_id)))

    async def send(self, words: str, parent_id: str | None) -> bool:
        """Store a turn (in a new chat where there is none) and have it answered."""
        if self.detail is None and not self._take(
            await self._session.ask(lambda service: service.create_chat(ChatPatch(settings=self._draft)))
        ):
            return False
        chat_id = self.id or ""
        request = SendRequest(content=words, parent_id=parent_id)
        return await self._session.ask(lambda service: service.send(chat_id, request)) is not None

    async def regenerate(self, message_id: str) -> bool:
        chat_id, request = self.id or "", RegenerateRequest(message_id=message_id)
        return await self._session.ask(lambda service: service.regenerate(chat_id, request)) is not None

    async def stop(self) -> None:
        chat_id = self.id or ""
        await self._session.ask(lambda service: service.stop(chat_id))

    async def turn_to_sibling(self, message: ChatMessage, step: int) -> ChatMessage | None:
        """Show the branch ``step`` places beside ``message``; the message there, None past either end."""
        other = branches.neighbour(self.detail, message, step) if self.detail else None
        if self.detail is None or other is None:
            return None
        leaf = branches.leaf_under(self.detail, other)
        return other if await self._patch(ChatPatch(leaf_id=leaf.id)) else None

    async def change(self, settings: ChatSettings) -> None:
        """Other settings for this chat, or for the one that is yet to be."""
        if self.detail is None:
            self._draft = settings
        else:
            await self._patch(ChatPatch(settings=settings))

    async def choose_model(self, model: str) -> None:
        await self.change(msgspec.structs.replace(self.settings, model=model))

    async def rename(self, title: str) -> None:
        await self._patch(ChatPatch(title=title))

    async def delete(self) -> bool:
        chat_id = self.id or ""
        if await self._session.ask(lambda service: service.delete_chat(chat_id)) is None:
            return False
        self.begin()
        return True

    async def export(self) -> str | None:
        """The chat as Markdown."""
        chat_id = self.id or ""
        return await self._session.ask(lambda service: service.export(chat_id))

    async def _patch(self, patch: ChatPatch) -> bool:
        chat_id = self.id or ""
        return self._take(await self._session.ask(lambda service: service.update_chat(chat_id, patch)))

    def _take(self, detail: ChatDetail | None) -> bool:
        if detail is not None:
            self.detail = detail
        return detail is not None
