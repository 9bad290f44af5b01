"""Responses that a later one may go on from: kept in memory only, bounded, each seen by the key that made it.

They hold what was said, so they are not written to the disk: content is not kept there unless somebody asks for it.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec
from msgspec import Struct

from localllm.core.errors import NotFound
from localllm.core.openai import WireMessage
from localllm.core.responses import ResponseReply

MAX_BYTES = 64 << 20
_encoder = msgspec.msgpack.Encoder(enc_hook=str)


class StoredResponse(Struct, frozen=True, kw_only=True):
    """``conversation`` is everything up to and with this response, without instructions."""

    reply: ResponseReply
    conversation: tuple[WireMessage, ...]


class StoredResponses:
    """The oldest go first when there is no room."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._kept: OrderedDict[tuple[str | None, str], tuple[StoredResponse, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, key: str | None, stored: StoredResponse) -> None:
        """``key`` is the name of the key that asked. One larger than the whole room is not kept."""
        size = len(_encoder.encode(stored))
        self._kept[key, stored.reply.id] = (stored, size)
        self._size += size
        while self._size > self._max_bytes:
            self._size -= self._kept.popitem(last=False)[1][1]

    def get(self, key: str | None, response_id: str) -> StoredResponse:
        """Raises NotFound, also for another key's."""
        found = self._kept.get((key, response_id))
        if found is None:
            raise NotFound(
                f"There is no response {response_id[:128]!r}.",
                hint="Responses are kept in memory until the service ends or room is needed, unless store is false.",
            )
        return found[0]

    def delete(self, key: str | None, response_id: str) -> None:
        """Raises NotFound."""
        self.get(key, response_id)
        self._size -= self._kept.pop((key, response_id))[1]
