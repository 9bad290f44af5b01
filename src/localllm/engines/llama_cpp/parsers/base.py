"""The frame of every parser: find markers in a stream, hold back only what may still become one.

A parser is a small state machine. The frame cuts the stream at markers and hands the pieces between them to the
current state; subclasses say which markers count now and what each does. Nothing is lost: what looked like a marker
and was none comes out as text, and a call that never got its name is given back as text at the end.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from localllm.core.generation import Event, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart


class OutputParser(Protocol):
    """One answer's parser. ``calls`` counts the tool calls so far; ``markers`` are special tokens it must see as text."""

    markers: frozenset[str]

    @property
    def calls(self) -> int: ...

    def feed(self, text: str) -> list[Event]:
        """Take the next whole characters and return what is certain by now."""

    def finish(self) -> list[Event]:
        """The answer ended: return what was held back."""


def new_call_id() -> str:
    return f"call_{secrets.token_hex(12)}"


def first_marker(text: str, markers: Sequence[str]) -> tuple[int, str] | None:
    """Position and name of the earliest marker in ``text``; of two at one place the longer wins."""
    best: tuple[int, str] | None = None
    for marker in markers:
        at = text.find(marker)
        if at < 0:
            continue
        if best is None or at < best[0] or (at == best[0] and len(marker) > len(best[1])):
            best = (at, marker)
    return best


def held_back(text: str, markers: Sequence[str]) -> int:
    """How many characters at the end of ``text`` may still grow into a marker."""
    longest = 0
    for marker in markers:
        for length in range(min(len(marker) - 1, len(text)), longest, -1):
            if text.endswith(marker[:length]):
                longest = length
                break
    return longest


class CallSink:
    """Turns calls into events: numbers them, draws their ids, and keeps count."""

    def __init__(self, new_id: Callable[[], str] = new_call_id) -> None:
        self._new_id = new_id
        self.count = 0

    def start(self, name: str) -> list[Event]:
        self.count += 1
        return [ToolCallStart(index=self.count - 1, id=self._new_id(), name=name)]

    def arguments(self, text: str) -> list[Event]:
        return [ToolCallDelta(index=self.count - 1, arguments=text)] if text else []


class CallReader(ABC):
    """Reads the inside of a call block. ``raw`` is what it was fed, in case no call comes of it."""

    def __init__(self, sink: CallSink) -> None:
        self.sink = sink
        self.raw = ""
        self._calls_before = sink.count

    @property
    def found_any(self) -> bool:
        return self.sink.count > self._calls_before

    def feed(self, text: str) -> list[Event]:
        self.raw += text
        return self.read(text)

    @abstractmethod
    def read(self, text: str) -> list[Event]: ...

    @abstractmethod
    def close(self) -> list[Event]:
        """The block ended (by its marker or with the answer)."""


class MarkerParser(ABC):
    """A parser made of states; the current one is a name that only the subclass understands."""

    markers: frozenset[str] = frozenset()

    def __init__(self, *, new_id: Callable[[], str] = new_call_id, opens_reasoning: bool = False) -> None:
        self.sink = CallSink(new_id)
        self._pending = ""
        self._spaces = ""
        self._spoke = False
        self._thought = opens_reasoning
        self.reasoning = opens_reasoning
        self.reader: CallReader | None = None

    @property
    def calls(self) -> int:
        return self.sink.count

    @abstractmethod
    def active(self) -> Sequence[str]:
        """The markers that mean something in the current state."""

    @abstractmethod
    def on_marker(self, marker: str) -> list[Event]: ...

    def on_text(self, text: str) -> list[Event]:
        if self.reader is not None:
            return self.reader.feed(text)
        self._thought = self._thought or self.reasoning
        return self.think(text) if self.reasoning else self.say(text)

    def feed(self, text: str) -> list[Event]:
        self._pending += text
        events: list[Event] = []
        while self._pending:
            active = self.active()
            found = first_marker(self._pending, active)
            if found is None:
                keep = held_back(self._pending, active)
                sure = self._pending[: len(self._pending) - keep]
                self._pending = self._pending[len(sure) :]
                if sure:
                    events += self.on_text(sure)
                break
            at, marker = found
            before, self._pending = self._pending[:at], self._pending[at + len(marker) :]
            if before:
                events += self.on_text(before)
            events += self.on_marker(marker)
        return events

    def finish(self) -> list[Event]:
        rest, self._pending = self._pending, ""
        events = self.on_text(rest) if rest else []
        events += self.end_call()
        if self._spaces and self.calls == 0 and self._spoke:
            events.append(TextDelta(self._spaces))
        self._spaces = ""
        return events

    def begin_call(self, reader: CallReader) -> list[Event]:
        events = self.end_call()
        self.reader = reader
        return events

    def end_call(self) -> list[Event]:
        reader, self.reader = self.reader, None
        if reader is None:
            return []
        events = reader.close()
        if not reader.found_any and reader.raw.strip():
            return [*events, *self.say(reader.raw)]
        return events

    def say(self, text: str) -> list[Event]:
        """Answer text: white space is held until something follows, so none is left before a call or after a thought."""
        text = self._spaces + text
        self._spaces = ""
        if self._thought and not self._spoke:
            text = text.lstrip()
        kept = text.rstrip()
        self._spaces = text[len(kept) :]
        if not kept:
            return []
        self._spoke = True
        return [TextDelta(kept)]

    def think(self, text: str) -> list[Event]:
        return [ReasoningDelta(text)] if text else []


class ThinkParser(MarkerParser):
    """Families that write ``<think>…</think>`` (or their own pair) around their reasoning."""

    think_open = "<think>"
    think_close = "</think>"

    def active(self) -> Sequence[str]:
        if self.reader is not None:
            return self.call_ends()
        if self.reasoning:
            return (self.think_close,)
        return (self.think_open, self.think_close, *self.call_starts())

    def on_marker(self, marker: str) -> list[Event]:
        if self.reader is None and marker == self.think_open:
            self.reasoning, self._fresh_thought = True, True
            return []
        if self.reader is None and marker == self.think_close:
            self.reasoning = False
            return []
        return self.on_call_marker(marker)

    def __init__(self, *, new_id: Callable[[], str] = new_call_id, opens_reasoning: bool = False) -> None:
        super().__init__(new_id=new_id, opens_reasoning=opens_reasoning)
        self._fresh_thought = True
        self._thought_spaces = ""

    def think(self, text: str) -> list[Event]:
        """Reasoning without the blank lines that the tags bring along."""
        text = self._thought_spaces + text
        if self._fresh_thought:
            text = text.lstrip()
        kept = text.rstrip()
        self._thought_spaces = text[len(kept) :]
        if not kept:
            return []
        self._fresh_thought = False
        return [ReasoningDelta(kept)]

    def call_starts(self) -> Sequence[str]:
        return ()

    def call_ends(self) -> Sequence[str]:
        return ()

    def on_call_marker(self, marker: str) -> list[Event]:
        return []
