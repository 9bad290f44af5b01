"""Readers of what stands inside a call block: JSON objects, bare arguments, XML-like parameters, Gemma's call syntax."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from localllm.core.generation import Event, Tool
from localllm.engines.llama_cpp.parsers.base import CallReader, CallSink
from localllm.engines.text import JsonObjectEnd

NAME_KEYS = ("name",)
ARGUMENT_KEYS = ("arguments", "parameters")


class JsonCalls(CallReader):
    """One object, or an array of them: ``{"name": …, "arguments": {…}}``, arguments streamed as they are written.

    ``parameters`` (Llama) stands for ``arguments``; they may come before the name, or as JSON text inside a string.
    """

    def __init__(self, sink: CallSink) -> None:
        super().__init__(sink)
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._begin_object()
        self._depth = 0

    def _begin_object(self) -> None:
        self._depth = 1
        self._key: str | None = None  # of the member whose value is being read; None while reading a key
        self._token = ""  # the key, or a value that is not streamed
        self._run = ""  # arguments read in this feed and not sent yet
        self._streams = False  # this value is an arguments object: it goes out as it comes
        self._early = ""  # arguments that came before the name
        self._named = False
        self._has_arguments = False

    def read(self, text: str) -> list[Event]:
        out: list[Event] = []
        for char in text:
            out += self._step(char)
        return out + self._flush()

    def close(self) -> list[Event]:
        return []

    def _step(self, char: str) -> list[Event]:
        if self._depth == 0:
            if char == "{":
                self._begin_object()
        elif self._in_string:
            self._end_string(char)
            self._collect(char)
        elif char == '"':
            self._in_string = True
            self._collect(char)
        elif char in "{[":
            self._depth += 1
            self._collect(char)
        elif char in "}]":
            if self._depth == 1:
                return self._end_member() + self._end_object()
            self._depth -= 1
            self._collect(char)
        elif self._depth == 1 and char == ",":
            return self._end_member()
        elif self._depth == 1 and char == ":" and self._key is None:
            self._key, self._token = _decode_string(self._token.strip()), ""
        else:
            self._collect(char)
        return []

    def _end_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False

    def _collect(self, char: str) -> None:
        if not self._streams and char == "{" and self._key in ARGUMENT_KEYS and not self._token.strip():
            self._streams = self._has_arguments = True
        if self._streams:
            self._run += char
        else:
            self._token += char

    def _flush(self) -> list[Event]:
        run, self._run = self._run, ""
        if self._named:
            return self.sink.arguments(run)
        self._early += run
        return []

    def _end_member(self) -> list[Event]:
        self._run = self._run.rstrip()
        events = self._flush()
        key, value = self._key, self._token.strip()
        self._key, self._token, self._streams = None, "", False
        if key in NAME_KEYS and not self._named and (name := _decode_string(value)):
            self._named = True
            return events + self.sink.start(name) + self.sink.arguments(self._early)
        if key in ARGUMENT_KEYS and value and value != "null":
            self._has_arguments = True
            self._run = _decode_string(value) if value.startswith('"') else value
            events += self._flush()
        return events

    def _end_object(self) -> list[Event]:
        self._depth = 0
        return self.sink.arguments("{}") if self._named and not self._has_arguments else []


class BareArguments(CallReader):
    """The name is known from the header; what follows is one JSON object, streamed until it ends."""

    def __init__(self, sink: CallSink, name: str) -> None:
        super().__init__(sink)
        self._name: str | None = name
        self._begun = False
        self._end = JsonObjectEnd()

    def read(self, text: str) -> list[Event]:
        events = self._announce()
        if not self._begun:
            begins = text.find("{")
            if begins < 0:
                return events
            self._begun, text = True, text[begins:]
        return events + self.sink.arguments(self._end.take(text))

    def close(self) -> list[Event]:
        return self._announce() + ([] if self._begun else self.sink.arguments("{}"))

    def _announce(self) -> list[Event]:
        name, self._name = self._name, None
        return self.sink.start(name) if name else []


class XmlParameters(CallReader):
    """Qwen3-Coder's form: ``<function=NAME><parameter=KEY>VALUE</parameter>…</function>``.

    Values are text; a parameter whose schema is not a string is read as JSON where it is JSON.
    """

    def __init__(self, sink: CallSink, tools: Sequence[Tool]) -> None:
        super().__init__(sink)
        self._schemas = {t.name: _properties(t) for t in tools}
        self._buffer = ""
        self._name: str | None = None
        self._first = True

    def read(self, text: str) -> list[Event]:
        self._buffer += text
        events: list[Event] = []
        while match := _XML_ITEM.search(self._buffer):
            self._buffer = self._buffer[match.end() :]
            events += self._take(match)
        return events

    def close(self) -> list[Event]:
        return self._end_function()

    def _take(self, match: re.Match[str]) -> list[Event]:
        if match["function"] is not None:
            events = self._end_function()
            self._name, self._first = match["function"].strip(), True
            return events + self.sink.start(self._name)
        if match["key"] is not None and self._name is not None:
            key, value = match["key"].strip(), _strip_newlines(match["value"])
            typed = _typed(value, self._schemas.get(self._name, {}).get(key))
            opening, self._first = ("{" if self._first else ", "), False
            return self.sink.arguments(f"{opening}{json.dumps(key)}: {json.dumps(typed, ensure_ascii=False)}")
        return self._end_function() if match["end"] is not None else []

    def _end_function(self) -> list[Event]:
        if self._name is None:
            return []
        self._name = None
        return self.sink.arguments("{}" if self._first else "}")


_XML_ITEM = re.compile(
    r"<function=(?P<function>[^>]*)>"
    r"|<parameter=(?P<key>[^>]*)>(?P<value>.*?)</parameter>"
    r"|(?P<end></function>)",
    re.DOTALL,
)


class HermesBlock(CallReader):
    """Inside ``<tool_call>``: JSON by default, Qwen3-Coder's XML when it begins with ``<function=``."""

    def __init__(self, sink: CallSink, tools: Sequence[Tool]) -> None:
        super().__init__(sink)
        self._tools = tools
        self._inner: CallReader | None = None
        self._buffer = ""

    def read(self, text: str) -> list[Event]:
        if self._inner is None:
            self._buffer += text
            start = self._buffer.lstrip()
            if not start or (start == "<function="[: len(start)] and len(start) < len("<function=")):
                return []
            xml = start.startswith("<function=")
            self._inner = XmlParameters(self.sink, self._tools) if xml else JsonCalls(self.sink)
            text = self._buffer
        return self._inner.feed(text)

    def close(self) -> list[Event]:
        return self._inner.close() if self._inner else []


class GemmaCalls(CallReader):
    """Gemma's form ``call:NAME{key:value,…}`` with strings between ``quote`` marks; read when the block ends."""

    def __init__(self, sink: CallSink, quote: str) -> None:
        super().__init__(sink)
        self._quote = quote

    def read(self, text: str) -> list[Event]:
        return []

    def close(self) -> list[Event]:
        events: list[Event] = []
        for match in re.finditer(r"call:\s*([\w.\-]+)\s*(\{.*)", self.raw, re.DOTALL):
            value, _ = _gemma_value(match[2], 0, self._quote)
            if isinstance(value, dict):
                events += self.sink.start(match[1])
                events += self.sink.arguments(json.dumps(value, ensure_ascii=False))
        return events


class NamedArguments(CallReader):
    """Mistral's newer form ``NAME[CALL_ID]…[ARGS]{…}``: the name ends at a tag or where the arguments begin."""

    _name_end = re.compile(r"\[CALL_ID\]|\[ARGS\]|\{")
    _inner: BareArguments | None = None

    def read(self, text: str) -> list[Event]:
        if self._inner is not None:
            return self._inner.feed(text)
        if "{" not in self.raw:
            return []
        end = self._name_end.search(self.raw)
        name = self.raw[: end.start()] if end else self.raw
        self._inner = BareArguments(self.sink, name.strip())
        return self._inner.feed(self.raw[self.raw.index("{") :])

    def close(self) -> list[Event]:
        return self._inner.close() if self._inner else []


# ---------------------------------------------------------------- values


def _decode_string(token: str) -> str:
    try:
        value = json.loads(token)
    except ValueError:
        return token.strip('"')
    return value if isinstance(value, str) else token


def _properties(tool: Tool) -> dict[str, object]:
    properties = tool.parameters.get("properties")
    return properties if isinstance(properties, dict) else {}


def _typed(text: str, schema: object) -> object:
    wants = schema.get("type") if isinstance(schema, Mapping) else None
    if wants == "string":
        return text
    try:
        value: object = json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
    return value


def _strip_newlines(text: str) -> str:
    return text.removeprefix("\n").removesuffix("\n")


def _gemma_value(text: str, at: int, quote: str) -> tuple[object, int]:
    """One value of Gemma's syntax at ``at`` and the position after it; what is no number or word is text."""
    while at < len(text) and text[at].isspace():
        at += 1
    if text.startswith(quote, at):
        end = text.find(quote, at + len(quote))
        end = len(text) if end < 0 else end
        return text[at + len(quote) : end], end + len(quote)
    if at < len(text) and text[at] == "{":
        return _gemma_object(text, at + 1, quote)
    if at < len(text) and text[at] == "[":
        items: list[object] = []
        at += 1
        while at < len(text) and text[at] != "]":
            item, after = _gemma_value(text, at, quote)
            items.append(item)
            at = after + 1 if after < len(text) and text[after] == "," else max(after, at)
            if after == at and (at >= len(text) or text[at] != "]"):
                break
        return items, at + 1
    match = re.compile(r"[^,}\]]*").match(text, at)
    word = match[0].strip() if match else ""
    try:
        return json.loads(word), at + len(match[0]) if match else at
    except ValueError:
        return word, at + len(match[0]) if match else at


def _gemma_object(text: str, at: int, quote: str) -> tuple[dict[str, object], int]:
    fields: dict[str, object] = {}
    while at < len(text) and text[at] != "}":
        colon = text.find(":", at)
        if colon < 0:
            break
        key = text[at:colon].strip(" ,\n").replace(quote, "").strip('"')
        value, at = _gemma_value(text, colon + 1, quote)
        fields[key] = value
        while at < len(text) and text[at] in ", \n":
            at += 1
    return fields, at + 1
