"""A chat as a Markdown file that reads well anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from localllm.core.control import ChatDetail, ChatMessage


def to_markdown(chat: ChatDetail, path: Sequence[ChatMessage]) -> str:
    """The title, the system prompt, and each turn with the model that answered; thoughts are quoted."""
    parts = [f"# {chat.summary.title}"]
    if chat.settings.system:
        parts.append(f"**System**\n\n{chat.settings.system.strip()}")
    parts += [_turn(message) for message in path]
    return "\n\n".join(parts) + "\n"


def _turn(message: ChatMessage) -> str:
    when = datetime.fromtimestamp(message.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if message.role == "user":
        return f"## You · {when}\n\n{message.content.strip()}"
    lines = [f"## {message.model or 'Assistant'} · {when}"]
    if message.reasoning:
        lines.append("\n".join(f"> {line}".rstrip() for line in message.reasoning.strip().splitlines()))
    if message.content:
        lines.append(message.content.strip())
    if message.state in ("partial", "failed"):
        lines.append(f"*({message.error or 'cut short'})*")
    return "\n\n".join(lines)
