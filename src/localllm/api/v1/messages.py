"""Chat messages as clients send them → messages every chat template can take.

Templates differ in what they tolerate: many raise on a second system message, on two turns of one role in a row, or
on content arrays. So this is settled once, here: ``developer`` is ``system``, system text goes to the front, same-role
neighbours become one message, text parts are joined. Nothing is dropped: what has no place is a 400 with its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from localllm.api.v1.images import image_from_url
from localllm.core.errors import BadRequest, Unsupported
from localllm.core.generation import ContentPart, Message, TextPart, ToolCall
from localllm.core.openai import (
    Content,
    ImageContent,
    RefusalContent,
    TextContent,
    WireMessage,
)

_BETWEEN_MESSAGES = "\n\n"
_BETWEEN_PARTS = "\n"


def normalise_messages(wire: Sequence[WireMessage]) -> tuple[Message, ...]:
    """The conversation as an engine takes it.

    Raises:
        BadRequest: no messages, a message without content, a tool message that answers no call; ``param`` is its path.
        Unsupported: audio or file parts.
    """
    if not wire:
        raise BadRequest("At least one message is needed.", param="messages")
    system: list[str] = []
    turns: list[Message] = []
    calls: dict[str, str] = {}
    for index, message in enumerate(wire):
        path = f"messages[{index}]"
        if message.role in ("system", "developer"):
            system.append(_text_only(message, path))
            continue
        turn = _tool_result(message, path, calls) if message.role == "tool" else _turn(message, path)
        calls.update((call.id, call.name) for call in turn.tool_calls)
        if turns and _mergeable(turns[-1], turn):
            turns[-1] = _merged(turns[-1], turn)
        else:
            turns.append(turn)
    if system:
        turns.insert(0, Message(role="system", content=_BETWEEN_MESSAGES.join(filter(None, system))))
    return tuple(turns)


def text_of_parts(parts: str | Sequence[TextContent]) -> str:
    """Text that may come as a string or as text parts."""
    return parts if isinstance(parts, str) else _BETWEEN_PARTS.join(part.text for part in parts)


def _turn(message: WireMessage, path: str) -> Message:
    if message.role == "user":
        if message.content is None:
            raise BadRequest("A user message needs content.", param=f"{path}.content")
        if message.tool_calls:
            raise BadRequest("Only assistant messages have tool calls.", param=f"{path}.tool_calls")
        return Message(role="user", content=_content(message, path), name=message.name)
    return Message(
        role="assistant",
        content=_content(message, path),
        reasoning=message.reasoning_content or message.reasoning,
        tool_calls=tuple(_tool_calls(message, path)),
        name=message.name,
    )


def _tool_calls(message: WireMessage, path: str) -> Iterator[ToolCall]:
    seen: set[str] = set()
    for index, call in enumerate(message.tool_calls or ()):
        if call.id in seen:
            raise BadRequest(
                f"The tool call id {call.id!r} is used twice.", param=f"{path}.tool_calls[{index}].id"
            )
        seen.add(call.id)
        yield ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)


def _tool_result(message: WireMessage, path: str, calls: dict[str, str]) -> Message:
    """A tool message, with the name of the function it answers: some templates print it."""
    if not message.tool_call_id:
        raise BadRequest("A tool message needs tool_call_id.", param=f"{path}.tool_call_id")
    if message.tool_call_id not in calls:
        raise BadRequest(
            f"No earlier assistant message has a tool call with the id {message.tool_call_id!r}.",
            param=f"{path}.tool_call_id",
        )
    if message.content is None:
        raise BadRequest("A tool message needs content.", param=f"{path}.content")
    return Message(
        role="tool",
        content=_text_only(message, path),
        tool_call_id=message.tool_call_id,
        name=message.name or calls[message.tool_call_id],
    )


def _text_only(message: WireMessage, path: str) -> str:
    content = _content(message, path)
    if not isinstance(content, str):
        raise BadRequest(f"A {message.role} message can only hold text.", param=f"{path}.content")
    return content


def _content(message: WireMessage, path: str) -> str | tuple[ContentPart, ...]:
    """Text parts side by side joined; a plain string unless there is an image among the parts."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    parts: list[ContentPart] = []
    for index, part in enumerate(message.content):
        converted = _part(part, f"{path}.content[{index}]")
        previous = parts[-1] if parts else None
        if isinstance(converted, TextPart) and isinstance(previous, TextPart):
            parts[-1] = TextPart(previous.text + _BETWEEN_PARTS + converted.text)
        else:
            parts.append(converted)
    if not parts:
        return ""
    only = parts[0]
    return only.text if len(parts) == 1 and isinstance(only, TextPart) else tuple(parts)


def _part(part: Content, path: str) -> ContentPart:
    match part:
        case TextContent(text):
            return TextPart(text)
        case RefusalContent(refusal):
            return TextPart(refusal)
        case ImageContent(image_url):
            url = image_url if isinstance(image_url, str) else image_url.url
            return image_from_url(url, f"{path}.image_url.url")
        case _:
            raise Unsupported("Only text and images can be sent to a model here.", param=f"{path}.type")


def _mergeable(first: Message, second: Message) -> bool:
    # A call must stay the last thing before its result, so only what follows no call is joined.
    return first.role == second.role and first.role != "tool" and not first.tool_calls


def _merged(first: Message, second: Message) -> Message:
    reasoning = [text for text in (first.reasoning, second.reasoning) if text]
    return replace(
        first,
        content=_joined(first.content, second.content),
        reasoning=_BETWEEN_MESSAGES.join(reasoning) or None,
        tool_calls=second.tool_calls,
        name=first.name if first.name == second.name else None,
    )


def _joined(
    first: str | tuple[ContentPart, ...], second: str | tuple[ContentPart, ...]
) -> str | tuple[ContentPart, ...]:
    if isinstance(first, str) and isinstance(second, str):
        return _BETWEEN_MESSAGES.join(filter(None, (first, second)))
    return (*_as_parts(first), *_as_parts(second))


def _as_parts(content: str | tuple[ContentPart, ...]) -> tuple[ContentPart, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return content
