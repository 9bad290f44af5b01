"""From tokens' bytes to text that may be shown: whole characters only, and never a piece of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Utf8Stream:
    """Joins bytes into whole characters.

    Bytes of a character that never completes are dropped; bytes that cannot be UTF-8 become U+FFFD.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        return self._decoder.decode(data)


class StopMatcher:
    """Finds stop strings in a stream, holding back text only while it may still become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """The text that is safe to show. After a match (``matched``) everything else is swallowed."""
        if not self._stops:
            return text
        if self.matched is not None:
            return ""
        buffer = self._held + text
        found = [(at, stop) for stop in self._stops if (at := buffer.find(stop)) >= 0]
        if found:
            # the one that is complete first wins, however the text is cut; of two that end together, the longer
            at, self.matched = min(found, key=lambda match: (match[0] + len(match[1]), match[0]))
            self._held = ""
            return buffer[:at]
        keep = self._overlap(buffer)
        self._held = buffer[len(buffer) - keep :]
        return buffer[: len(buffer) - keep]

    def flush(self) -> str:
        """What was held back, once nothing more will come."""
        held, self._held = self._held, ""
        return held

    def _overlap(self, buffer: str) -> int:
        """Length of the longest end of ``buffer`` that begins a stop string."""
        for size in range(min(self._longest - 1, len(buffer)), 0, -1):
            end = buffer[-size:]
            if any(stop.startswith(end) for stop in self._stops):
                return size
        return 0


class JsonObjectEnd:
    """Lets through one JSON object, whatever pieces it comes in; what follows its end (such as the brace of a call around it) is cut."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.ended = False

    def take(self, text: str) -> str:
        for at, char in enumerate(text):
            if self.ended:
                return text[:at]
            self._step(char)
        return text

    def _step(self, char: str) -> None:
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif char == "\\":
                self._escaped = True
            elif char == '"':
                self._in_string = False
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self.ended = self._depth == 0
