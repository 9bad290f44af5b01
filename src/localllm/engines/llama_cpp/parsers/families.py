"""The families: which markers each writes, and how a template gives its family away."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum

from localllm.core.generation import Event, Tool
from localllm.engines.llama_cpp.parsers.base import (
    CallReader,
    MarkerParser,
    OutputParser,
    ThinkParser,
    new_call_id,
)
from localllm.engines.llama_cpp.parsers.readers import (
    BareArguments,
    GemmaCalls,
    HermesBlock,
    JsonCalls,
    NamedArguments,
)


class Family(StrEnum):
    """How a model writes its calls. ``GENERIC`` is for templates without tools: the tagged JSON we describe to them."""

    HERMES = "hermes"
    LLAMA3 = "llama3"
    MISTRAL = "mistral"
    HARMONY = "gpt-oss"
    GEMMA = "gemma"
    GRANITE = "granite"
    DEEPSEEK = "deepseek"
    GENERIC = "generic"


def family_of(template: str) -> Family:
    """The family whose markers stand in the template; ``GENERIC`` when none does."""
    if "<|channel|>" in template and "<|message|>" in template:
        return Family.HARMONY
    if "tool▁call▁begin" in template or "tool▁calls▁begin" in template:
        return Family.DEEPSEEK
    if "[TOOL_CALLS]" in template:
        return Family.MISTRAL
    if "<start_function_call>" in template or "<tool_call|>" in template:
        return Family.GEMMA
    if "<tool_call>" in template:
        return Family.HERMES
    if "<|tool_call|>" in template:
        return Family.GRANITE
    if "<|python_tag|>" in template or ("<|start_header_id|>" in template and '"parameters"' in template):
        return Family.LLAMA3
    return Family.GENERIC


def make_parser(
    family: Family,
    tools: Sequence[Tool] = (),
    *,
    opens_reasoning: bool = False,
    new_id: Callable[[], str] = new_call_id,
) -> OutputParser:
    """A parser for one answer. Without ``tools`` calls are not looked for: their markers are plain text then."""
    if family is Family.HARMONY:
        return HarmonyParser(tools, new_id=new_id)
    kinds: dict[Family, type[ToolParser]] = {
        Family.LLAMA3: Llama3Parser,
        Family.MISTRAL: MistralParser,
        Family.GEMMA: GemmaParser,
        Family.GRANITE: GraniteParser,
        Family.DEEPSEEK: DeepSeekParser,
    }
    return kinds.get(family, HermesParser)(tools, new_id=new_id, opens_reasoning=opens_reasoning)


class ToolParser(ThinkParser):
    """A family with its think tags and one or more call blocks."""

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        *,
        new_id: Callable[[], str] = new_call_id,
        opens_reasoning: bool = False,
    ) -> None:
        super().__init__(new_id=new_id, opens_reasoning=opens_reasoning)
        self.tools = tuple(tools)

    def call_starts(self) -> Sequence[str]:
        return self.starts if self.tools else ()

    def call_ends(self) -> Sequence[str]:
        return self.ends

    starts: Sequence[str] = ()
    ends: Sequence[str] = ()


class HermesParser(ToolParser):
    """Hermes, Qwen and Granite 4: ``<tool_call>{…}</tool_call>``; Qwen3-Coder's XML inside the same tags."""

    starts = ("<tool_call>",)
    ends = ("</tool_call>",)
    markers = frozenset({"<think>", "</think>", "<tool_call>", "</tool_call>"})

    def on_call_marker(self, marker: str) -> list[Event]:
        if marker == "<tool_call>":
            return self.begin_call(HermesBlock(self.sink, self.tools))
        return self.end_call()


class Llama3Parser(ToolParser):
    """Llama 3: a bare ``{"name": …, "parameters": …}`` as the whole answer, or after ``<|python_tag|>``; ``;`` between."""

    starts = ("<|python_tag|>",)
    ends = ("<|eom_id|>", "<|eot_id|>")
    markers = frozenset({"<|python_tag|>", "<|eom_id|>", "<|eot_id|>", "<think>", "</think>"})
    _opening = re.compile(r'\s*\{\s*"(type"\s*:\s*"function"|name"|parameters")')

    def __init__(
        self,
        tools: Sequence[Tool] = (),
        *,
        new_id: Callable[[], str] = new_call_id,
        opens_reasoning: bool = False,
    ) -> None:
        super().__init__(tools, new_id=new_id, opens_reasoning=opens_reasoning)
        self._undecided: str | None = "" if tools else None

    def on_text(self, text: str) -> list[Event]:
        if self._undecided is None or self.reader is not None or self.reasoning:
            return super().on_text(text)
        self._undecided += text
        if self._opening.match(self._undecided):
            return self._decide(JsonCalls(self.sink))
        if _may_open_call(self._undecided):
            return []
        return self._decide(None)

    def on_call_marker(self, marker: str) -> list[Event]:
        if marker == "<|python_tag|>":
            events = self._decide(None) if self._undecided else []
            self._undecided = None
            return events + self.begin_call(PythonTag(self.sink))
        return self.end_call()

    def finish(self) -> list[Event]:
        rest, self._pending = self._pending, ""
        events = self.on_text(rest) if rest else []
        if self._undecided:
            events += self._decide(None)
        return events + super().finish()

    def _decide(self, reader: CallReader | None) -> list[Event]:
        text, self._undecided = self._undecided or "", None
        events = self.begin_call(reader) if reader else []
        return events + super().on_text(text)


def _may_open_call(text: str) -> bool:
    """Whether ``text`` can still become the opening of a bare JSON call."""
    squeezed = re.sub(r"\s", "", text)
    openings = ('{"type":"function"', '{"name"', '{"parameters"')
    return any(opening.startswith(squeezed) for opening in openings)


class PythonTag(CallReader):
    """After ``<|python_tag|>``: JSON calls, a built-in ``tool.call(key="value")``, or code for the interpreter."""

    _builtin = re.compile(r"\s*(\w+)\.call\((.*)\)\s*$", re.DOTALL)

    _json: JsonCalls | None = None

    def read(self, text: str) -> list[Event]:
        if self._json is not None:
            return self._json.feed(text)
        if not self.raw.lstrip().startswith("{"):
            return []
        self._json = JsonCalls(self.sink)
        return self._json.feed(self.raw)

    def close(self) -> list[Event]:
        match = self._builtin.match(self.raw)
        if self._json is not None or match is None:
            return []
        pairs = re.findall(r'(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|[^,]+)', match[2])
        body = ", ".join(f'"{key}": {value.strip()}' for key, value in pairs)
        return self.sink.start(match[1]) + self.sink.arguments("{" + body + "}")


class MistralParser(ToolParser):
    """Mistral: ``[TOOL_CALLS][{…}]``, or ``[TOOL_CALLS]name[ARGS]{…}``, once per call; ``[THINK]`` pairs."""

    think_open = "[THINK]"
    think_close = "[/THINK]"
    starts = ("[TOOL_CALLS]",)
    ends = ("[TOOL_CALLS]", "</s>")
    markers = frozenset({"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"})

    def on_call_marker(self, marker: str) -> list[Event]:
        return self.begin_call(MistralBlock(self.sink)) if marker == "[TOOL_CALLS]" else self.end_call()


class MistralBlock(CallReader):
    """Decides by its first character between the JSON array of old and the ``name[ARGS]`` of new models."""

    _inner: CallReader | None = None

    def read(self, text: str) -> list[Event]:
        if self._inner is None:
            start = self.raw.lstrip()
            if not start:
                return []
            self._inner = JsonCalls(self.sink) if start[0] in "[{" else NamedArguments(self.sink)
            text = self.raw
        return self._inner.feed(text)

    def close(self) -> list[Event]:
        return self._inner.close() if self._inner else []


class GraniteParser(ToolParser):
    """Granite 3: ``<|tool_call|>[{…}]`` to the end of the answer; ``<response>`` tags around the answer are dropped."""

    starts = ("<|tool_call|>", "<tool_call>")
    ends = ("<|end_of_text|>", "</tool_call>")
    markers = frozenset({"<|tool_call|>", "<tool_call>", "</tool_call>", "<think>", "</think>"})

    def active(self) -> Sequence[str]:
        extra = () if self.reader or self.reasoning else ("<response>", "</response>")
        return (*super().active(), *extra)

    def on_call_marker(self, marker: str) -> list[Event]:
        if marker in self.starts:
            return self.begin_call(JsonCalls(self.sink))
        return self.end_call() if marker in self.ends else []


class DeepSeekParser(ToolParser):
    """DeepSeek: calls between its own full-width tags; R1 and V3 name the type first and fence the JSON."""

    starts = ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>")
    ends = ("<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>")
    markers = frozenset({*starts, *ends, "<｜tool▁sep｜>", "<think>", "</think>"})

    def active(self) -> Sequence[str]:
        extra = ("<｜tool▁calls▁end｜>",) if self.tools and not self.reader and not self.reasoning else ()
        return (*super().active(), *extra)

    def on_call_marker(self, marker: str) -> list[Event]:
        if marker == "<｜tool▁call▁begin｜>":
            return self.begin_call(DeepSeekBlock(self.sink))
        return self.end_call()


class DeepSeekBlock(CallReader):
    """``function<sep>NAME\\n```json\\n{…}`` (R1, V3) or ``NAME<sep>{…}`` (V3.1)."""

    _separator = "<｜tool▁sep｜>"
    _inner: BareArguments | None = None

    def read(self, text: str) -> list[Event]:
        if self._inner is not None:
            return self._inner.feed(text)
        head, found, rest = self.raw.partition(self._separator)
        if not found or "{" not in rest:
            return []
        name = head.strip()
        if name == "function":
            name = rest.partition("\n")[0].strip()
            rest = rest.partition("\n")[2]
        self._inner = BareArguments(self.sink, name)
        return self._inner.feed(rest)

    def close(self) -> list[Event]:
        return self._inner.close() if self._inner else []


class GemmaParser(ToolParser):
    """FunctionGemma and Gemma 4: ``call:NAME{…}`` between their tags; Gemma 4 thinks in a ``thought`` channel."""

    think_open = "<|channel>thought\n"
    think_close = "<channel|>"
    starts = ("<start_function_call>", "<|tool_call>")
    ends = ("<end_function_call>", "<tool_call|>")
    markers = frozenset({*starts, *ends, "<escape>", '<|"|>', "<|channel>", "<channel|>"})

    def on_call_marker(self, marker: str) -> list[Event]:
        if marker in self.starts:
            return self.begin_call(GemmaCalls(self.sink, "<escape>" if marker == self.starts[0] else '<|"|>'))
        return self.end_call()


class HarmonyParser(MarkerParser):
    """gpt-oss: ``<|channel|>analysis|commentary|final [to=functions.NAME]<|message|>…<|end|>``.

    Analysis is reasoning, final is text, commentary with a recipient is a call and without one is text.
    """

    markers = frozenset(
        {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>"}
    )
    _recipient = re.compile(r"to=(?:functions\.)?([\w.\-]+)")

    def __init__(self, tools: Sequence[Tool] = (), *, new_id: Callable[[], str] = new_call_id) -> None:
        super().__init__(new_id=new_id)
        self._tools = tuple(tools)
        self._header: str | None = None

    def active(self) -> Sequence[str]:
        return tuple(self.markers)

    def on_text(self, text: str) -> list[Event]:
        if self._header is not None:
            self._header += text
            return []
        return super().on_text(text)

    def on_marker(self, marker: str) -> list[Event]:
        if marker == "<|message|>":
            header, self._header = self._header or "", None
            return self._open(header)
        if marker in ("<|start|>", "<|channel|>", "<|constrain|>"):
            self._header = f"{self._header or ''} {marker.strip('<|>')} "
            return []
        self.reasoning, self._header = False, None
        return self.end_call()

    def _open(self, header: str) -> list[Event]:
        words = header.split()
        channel = words[words.index("channel") + 1] if "channel" in words[:-1] else "final"
        recipient = self._recipient.search(header)
        self.reasoning = channel == "analysis" and recipient is None
        if recipient is not None and self._tools:
            return self.begin_call(BareArguments(self.sink, recipient[1]))
        return []
