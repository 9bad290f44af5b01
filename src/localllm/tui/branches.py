"""The tree of a chat: which messages are on the branch that is shown, and which stand beside them.

Pure functions over `ChatDetail`; the service owns the tree, the app only walks it.
"""

from __future__ import annotations

from localllm.core.control import ChatDetail, ChatMessage


def shown(detail: ChatDetail) -> tuple[ChatMessage, ...]:
    """The messages from the root to ``leaf_id``, in order of speaking; without a leaf, to the newest message."""
    by_id = {message.id: message for message in detail.messages}
    at = by_id.get(detail.leaf_id or "")
    if at is None and detail.messages:
        at = max(detail.messages, key=lambda m: m.created_at)
    path: list[ChatMessage] = []
    seen: set[str] = set()
    while at is not None and at.id not in seen:
        seen.add(at.id)
        path.append(at)
        at = by_id.get(at.parent_id or "")
    return tuple(reversed(path))


def siblings(detail: ChatDetail, message: ChatMessage) -> tuple[ChatMessage, ...]:
    """All messages that follow the same one as ``message`` (itself too), oldest first."""
    beside = [m for m in detail.messages if m.parent_id == message.parent_id and m.role == message.role]
    return tuple(sorted(beside, key=lambda m: (m.created_at, m.id)))


def neighbour(detail: ChatDetail, message: ChatMessage, step: int) -> ChatMessage | None:
    """The sibling ``step`` places on, None past either end."""
    beside = siblings(detail, message)
    index = next((i for i, m in enumerate(beside) if m.id == message.id), None)
    if index is None or not 0 <= index + step < len(beside):
        return None
    return beside[index + step]


def leaf_under(detail: ChatDetail, message: ChatMessage) -> ChatMessage:
    """The end of the newest branch below ``message``: where switching to it should land."""
    at = message
    seen = {at.id}
    while True:
        children = [m for m in detail.messages if m.parent_id == at.id and m.id not in seen]
        if not children:
            return at
        at = max(children, key=lambda m: (m.created_at, m.id))
        seen.add(at.id)
