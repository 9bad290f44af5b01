"""Server-sent events, decoded as the HTML standard says: by lines, across any split of the bytes."""

from __future__ import annotations

import codecs
from collections.abc import AsyncIterator, Iterator

from msgspec import Struct

from localllm.core.errors import ServiceError

MAX_EVENT_CHARS = 64 << 20


class ServerSentEvent(Struct, frozen=True):
    name: str
    data: str


class Decoder:
    """Fed with bytes as they come; gives the events that are complete. Comments are passed over."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self._after_cr = False
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[ServerSentEvent]:
        """Raises ServiceError when one event grows beyond all reason."""
        text = self._text.decode(chunk)
        if self._after_cr and text.startswith("\n"):
            text = text[1:]
        if text:
            self._after_cr = text.endswith("\r")
        *lines, rest = (self._line + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._line = rest
        for line in lines:
            event = self._take(line)
            if event is not None:
                yield event
        if self._size + len(self._line) > MAX_EVENT_CHARS:
            raise ServiceError("The service sent an event without an end.")

    def _take(self, line: str) -> ServerSentEvent | None:
        if not line:
            event = ServerSentEvent(self._name or "message", "\n".join(self._data)) if self._data else None
            self._name, self._data, self._size = "", [], 0
            return event
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += len(value)
        elif name == "event":
            self._name = value
        return None


async def decode(chunks: AsyncIterator[bytes]) -> AsyncIterator[ServerSentEvent]:
    """The events of a response body."""
    decoder = Decoder()
    async for chunk in chunks:
        for event in decoder.feed(chunk):
            yield event
