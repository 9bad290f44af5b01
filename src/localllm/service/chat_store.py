"""Chats in SQLite: trees of messages, searched by their words. Only rows in and out; what they mean is ``chats.py``."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Sequence

import msgspec

from localllm.core.control import ChatMessage, ChatSettings, ChatSummary
from localllm.core.errors import NotFound
from localllm.service.database import Database
from localllm.service.schema import has_full_text

_MESSAGE_COLUMNS = ChatMessage.__struct_fields__
_MESSAGE_LIST = ", ".join(_MESSAGE_COLUMNS)
_LISTED = 500
_CUT_SHORT = "The service ended while this was being written."


class StoredChat(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``chats``; ``titled`` = a person gave the title."""

    id: str
    title: str
    titled: bool
    created_at: float
    updated_at: float
    settings: ChatSettings
    leaf_id: str | None


class ChatStore:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._full_text = has_full_text()

    async def mark_cut_short(self) -> None:
        """Replies that a crash left streaming become partial, or failed when they had said nothing."""

        def work(c: sqlite3.Connection) -> None:
            c.execute(
                "UPDATE messages SET state = CASE WHEN content = '' AND coalesce(reasoning, '') = ''"
                " THEN 'failed' ELSE 'partial' END, error = ? WHERE state = 'streaming'",
                (_CUT_SHORT,),
            )

        await self._database.run(work)

    async def create(self, chat: StoredChat) -> None:
        await self._database.run(lambda c: _write_chat(c, chat))

    async def save(self, chat: StoredChat) -> None:
        await self._database.run(lambda c: _write_chat(c, chat))

    async def get(self, chat_id: str) -> StoredChat:
        """Raises NotFound."""
        row = await self._database.run(
            lambda c: c.execute(
                "SELECT id, title, titled, created_at, updated_at, settings, leaf_id FROM chats WHERE id = ?",
                (chat_id,),
            ).fetchone()
        )
        if row is None:
            raise NotFound(f"There is no chat {chat_id!r}.", hint="It may have been deleted.", param="id")
        return StoredChat(
            id=row[0],
            title=row[1],
            titled=bool(row[2]),
            created_at=row[3],
            updated_at=row[4],
            settings=msgspec.json.decode(row[5], type=ChatSettings),
            leaf_id=row[6],
        )

    async def delete(self, chat_id: str) -> None:
        def work(c: sqlite3.Connection) -> None:
            if self._full_text:
                c.execute("DELETE FROM message_words WHERE chat_id = ?", (chat_id,))
            c.execute("DELETE FROM chats WHERE id = ?", (chat_id,))

        await self._database.run(work)

    async def messages(self, chat_id: str) -> tuple[ChatMessage, ...]:
        """The whole tree, oldest first."""
        rows = await self._database.run(
            lambda c: c.execute(
                f"SELECT {_MESSAGE_LIST} FROM messages WHERE chat_id = ? ORDER BY created_at, rowid",
                (chat_id,),
            ).fetchall()
        )
        return tuple(_message(row) for row in rows)

    async def add_turn(self, chat: StoredChat, messages: Sequence[ChatMessage]) -> None:
        """Append messages and save the chat (its leaf, title and time) in one transaction."""

        def work(c: sqlite3.Connection) -> None:
            _write_chat(c, chat)
            for message in messages:
                _write_message(c, chat.id, message)
                self._index(c, chat.id, message)

        await self._database.run(work)

    def save_soon(self, chat_id: str, message: ChatMessage) -> None:
        """Write a reply as it stands, behind the generation's back."""
        self._database.submit(lambda c: _write_message(c, chat_id, message))

    def finish_soon(self, chat_id: str, message: ChatMessage) -> None:
        """Write a reply's final form and make its words searchable; ordered before any later read."""

        def work(c: sqlite3.Connection) -> None:
            _write_message(c, chat_id, message)
            self._index(c, chat_id, message)
            c.execute("UPDATE chats SET updated_at = ? WHERE id = ?", (time.time(), chat_id))

        self._database.submit(work)

    async def summaries(self, query: str = "") -> tuple[ChatSummary, ...]:
        """Chats by their last change, or those whose title or messages hold every word of ``query``."""
        words = re.findall(r"\w+", query)
        if words:
            rows = await self._database.run(lambda c: self._search(c, words))
        else:
            rows = await self._database.run(
                lambda c: c.execute(f"{_SUMMARIES} ORDER BY updated_at DESC LIMIT {_LISTED}").fetchall()
            )
        return tuple(
            ChatSummary(
                id=row[0],
                title=row[1],
                updated_at=row[2],
                model=msgspec.json.decode(row[3], type=ChatSettings).model,
                message_count=row[4],
                match=row[5],
            )
            for row in rows
        )

    def _search(
        self, c: sqlite3.Connection, words: Sequence[str]
    ) -> list[tuple[str, str, float, str, int, str]]:
        """Rows of ``_SUMMARIES`` with the passage that matched; titles count as well."""
        if self._full_text:
            found = c.execute(
                "SELECT chat_id, snippet(message_words, 0, '', '', '…', 12) FROM message_words"
                " WHERE message_words MATCH ? ORDER BY rank LIMIT ?",
                (" ".join(f'"{word}"*' for word in words), _LISTED),
            ).fetchall()
        else:
            where = " AND ".join("content LIKE ?" for _ in words)
            found = c.execute(
                f"SELECT chat_id, substr(content, 1, 120) FROM messages WHERE {where} LIMIT {_LISTED}",
                [f"%{word}%" for word in words],
            ).fetchall()
        passages: dict[str, str] = {}
        for chat_id, passage in found:
            passages.setdefault(chat_id, " ".join(passage.split()))
        titles = " AND ".join("title LIKE ?" for _ in words)
        marks = ", ".join("?" * len(passages))
        rows = c.execute(
            f"{_SUMMARIES} WHERE id IN ({marks}) OR ({titles}) ORDER BY updated_at DESC LIMIT {_LISTED}",
            [*passages, *(f"%{word}%" for word in words)],
        )
        return [(*row[:5], passages.get(row[0], row[1])) for row in rows.fetchall()]

    def _index(self, c: sqlite3.Connection, chat_id: str, message: ChatMessage) -> None:
        if self._full_text and message.content and message.state != "streaming":
            c.execute("DELETE FROM message_words WHERE message_id = ?", (message.id,))
            c.execute(
                "INSERT INTO message_words (content, chat_id, message_id) VALUES (?, ?, ?)",
                (message.content, chat_id, message.id),
            )


_SUMMARIES = (
    "SELECT id, title, updated_at, settings,"
    " (SELECT count(*) FROM messages WHERE chat_id = chats.id), NULL FROM chats"
)


def _write_chat(c: sqlite3.Connection, chat: StoredChat) -> None:
    settings = msgspec.json.encode(chat.settings).decode()
    c.execute(
        "INSERT INTO chats (id, title, titled, created_at, updated_at, settings, leaf_id)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET title = excluded.title,"
        " titled = excluded.titled, updated_at = excluded.updated_at, settings = excluded.settings,"
        " leaf_id = excluded.leaf_id",
        (chat.id, chat.title, chat.titled, chat.created_at, chat.updated_at, settings, chat.leaf_id),
    )


def _write_message(c: sqlite3.Connection, chat_id: str, message: ChatMessage) -> None:
    updates = ", ".join(f"{name} = excluded.{name}" for name in _MESSAGE_COLUMNS if name != "id")
    marks = ", ".join("?" * len(_MESSAGE_COLUMNS))
    c.execute(
        # a chat that was deleted while its reply was being written stays deleted
        f"INSERT INTO messages (chat_id, {_MESSAGE_LIST})"
        f" SELECT ?, {marks} WHERE EXISTS (SELECT 1 FROM chats WHERE id = ?)"
        f" ON CONFLICT (id) DO UPDATE SET {updates}",
        (chat_id, *msgspec.structs.astuple(message), chat_id),
    )


def _message(row: tuple[object, ...]) -> ChatMessage:
    return msgspec.convert(dict(zip(_MESSAGE_COLUMNS, row, strict=True)), ChatMessage, strict=False)
