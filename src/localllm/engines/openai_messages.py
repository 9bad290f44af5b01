"""Messages and tools in OpenAI's spelling, which llama-server and every remote read alike. Pure."""

from __future__ import annotations

import base64
from typing import assert_never

from localllm.core.generation import ImagePart, Message, TextPart, Tool


def message_fields(message: Message) -> dict[str, object]:
    fields: dict[str, object] = {"role": message.role, "content": _content(message)}
    if message.reasoning is not None:
        fields["reasoning_content"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        fields["name"] = message.name
    return fields


def _content(message: Message) -> object:
    if isinstance(message.content, str):
        return message.content
    parts: list[dict[str, object]] = []
    for part in message.content:
        match part:
            case TextPart(text):
                parts.append({"type": "text", "text": text})
            case ImagePart(data, media_type):
                url = f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"
                parts.append({"type": "image_url", "image_url": {"url": url}})
            case _:
                assert_never(part)
    return parts


def tool_fields(tool: Tool) -> dict[str, object]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function | ({"strict": True} if tool.strict else {})}
