"""Tools for models whose chat template knows none: told in the prompt's text, and found again in the answer's.

llama-server drops tools that the template cannot show, ``tool_choice: required`` included. Here a required call is
enforced by a grammar, and a voluntary one is recognised while it streams: text that begins like a call is held back
only as long as it may still become one.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence

import msgspec

from localllm.core.generation import Event, Message, TextDelta, TextPart, Tool, ToolCallDelta, ToolCallStart
from localllm.engines.text import JsonObjectEnd

_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*(?=\{)')
_HEAD_SHAPE = '{"name":"'
_LONGEST_HEAD = 512


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def tool_call_schema(tools: Sequence[Tool]) -> dict[str, object]:
    """A JSON Schema that only a call of one of these tools fits."""
    calls: list[dict[str, object]] = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": tool.parameters or {"type": "object"}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


def describe_tools(
    messages: Sequence[Message], tools: Sequence[Tool], *, required: bool
) -> tuple[Message, ...]:
    """The messages with a system text that says which functions there are and how to call one."""
    listed = "\n".join(
        json.dumps({"name": t.name, "description": t.description, "parameters": t.parameters}) for t in tools
    )
    when = (
        "Call one of them." if required else "Call one of them if it helps; otherwise answer in plain text."
    )
    text = (
        f"You can call these functions:\n{listed}\n{when} "
        'To call a function, answer with nothing but {"name": NAME, "arguments": ARGUMENTS}.'
    )
    first, *rest = messages or (Message(role="system"),)
    if first.role != "system":
        return (Message(role="system", content=text), *messages)
    content = first.content
    joined = f"{content}\n\n{text}" if isinstance(content, str) else (*content, TextPart(f"\n\n{text}"))
    return (msgspec.structs.replace(first, content=joined), *rest)


def tell_results_as_text(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Earlier calls and their results as plain messages, for a template that has no place for either."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    told = []
    for message in messages:
        if message.tool_calls:
            calls = "\n".join(
                f'{{"name": "{c.name}", "arguments": {c.arguments}}}' for c in message.tool_calls
            )
            before = message.content if isinstance(message.content, str) else _joined(message.content)
            text = f"{before}\n{calls}" if before else calls
            told.append(Message(role="assistant", content=text, reasoning=message.reasoning))
        elif message.role == "tool":
            name = message.name or names.get(message.tool_call_id or "", "the function")
            result = message.content if isinstance(message.content, str) else _joined(message.content)
            told.append(Message(role="user", content=f"Result of {name}: {result}"))
        else:
            told.append(message)
    return tuple(told)


def _joined(parts: Sequence[object]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))


class ToolTextReader:
    """Turns one choice's text into text and tool-call events. Feed it every delta, then ``close`` it."""

    def __init__(self, names: Sequence[str], choice: int) -> None:
        self._names = frozenset(names)
        self._choice = choice
        self._held = ""
        self._plain = False
        self._arguments: JsonObjectEnd | None = None
        self.called = False

    def feed(self, text: str) -> list[Event]:
        if self._plain:
            return [TextDelta(text, self._choice)]
        if self._arguments is not None:
            return self._argue(text)
        self._held += text
        head = _HEAD.match(self._held)
        if head is not None and (name := json.loads(f'"{head[1]}"')) in self._names:
            self.called = True
            self._arguments = JsonObjectEnd()
            rest, self._held = self._held[head.end() :], ""
            start = ToolCallStart(0, new_call_id(), name, self._choice)
            return [start, *self._argue(rest)]
        if head is not None or not self._may_become_a_call():
            self._plain = True
            return list(self.close())
        return []

    def close(self) -> list[TextDelta]:
        """What was held back and turned out to be text after all."""
        held, self._held = self._held, ""
        return [TextDelta(held, self._choice)] if held else []

    def _argue(self, text: str) -> list[Event]:
        assert self._arguments is not None
        part = self._arguments.take(text)
        return [ToolCallDelta(0, part, self._choice)] if part else []

    def _may_become_a_call(self) -> bool:
        squeezed = re.sub(r"\s+", "", self._held)
        return len(self._held) < _LONGEST_HEAD and (
            _HEAD_SHAPE.startswith(squeezed) or squeezed.startswith(_HEAD_SHAPE)
        )
