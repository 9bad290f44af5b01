"""The tables. Statements must be safe to run at every start, on an empty file and on one of an older version."""

from __future__ import annotations

import sqlite3
from typing import Any, get_type_hints

from localllm.core.control import RequestRecord

_CHATS = """
CREATE TABLE IF NOT EXISTS chats (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL,
    titled INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    settings TEXT NOT NULL,
    leaf_id TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS chats_by_update ON chats (updated_at DESC);
CREATE TABLE IF NOT EXISTS messages (
    id TEXT PRIMARY KEY,
    chat_id TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
    parent_id TEXT REFERENCES messages (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    reasoning TEXT,
    reasoning_ms REAL,
    state TEXT NOT NULL,
    created_at REAL NOT NULL,
    model TEXT,
    finish_reason TEXT,
    error TEXT,
    prompt_tokens INTEGER,
    cached_tokens INTEGER,
    completion_tokens INTEGER,
    ttft_ms REAL,
    tokens_per_second REAL
) STRICT;
CREATE INDEX IF NOT EXISTS messages_by_chat ON messages (chat_id, created_at);
CREATE INDEX IF NOT EXISTS messages_by_parent ON messages (parent_id);
"""

_SEARCH = """
CREATE VIRTUAL TABLE IF NOT EXISTS message_words USING fts5 (
    content, chat_id UNINDEXED, message_id UNINDEXED, tokenize = 'unicode61 remove_diacritics 2'
);
"""

RECORD_COLUMNS = RequestRecord.__struct_fields__


def schema() -> str:
    """Every statement, with the words' index where this SQLite was built with FTS5."""
    return _CHATS + _records() + (_SEARCH if has_full_text() else "")


def has_full_text() -> bool:
    with_options = sqlite3.connect(":memory:")
    try:
        options = {row[0] for row in with_options.execute("PRAGMA compile_options")}
    finally:
        with_options.close()
    return "ENABLE_FTS5" in options


def _records() -> str:
    """The table of request records has one column per field of ``RequestRecord``."""
    hints = get_type_hints(RequestRecord)
    columns = ", ".join(f"{name} {_column_type(hints[name])}" for name in RECORD_COLUMNS)
    return f"""
CREATE TABLE IF NOT EXISTS requests (number INTEGER PRIMARY KEY AUTOINCREMENT, {columns}) STRICT;
CREATE INDEX IF NOT EXISTS requests_by_time ON requests (created_at DESC);
CREATE INDEX IF NOT EXISTS requests_by_id ON requests (id);
"""


def _column_type(hint: Any) -> str:
    text = str(hint)
    if "float" in text:
        return "REAL"
    if "int" in text or "bool" in text:
        return "INTEGER"
    return "TEXT"
