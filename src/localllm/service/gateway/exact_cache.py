"""Answers given again to the same question: exact, only where the answer is determined, bounded in size and age.

A request is kept only when it would be answered the same again (temperature 0 or a seed, one choice). The key is a hash of
everything that decides the answer, the model file's identity included, so a replaced model never answers from before.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from localllm.core.generation import Event, GenerationRequest, Progress, Tier

_encoder = msgspec.msgpack.Encoder(order="deterministic")


class Kept(Struct, frozen=True):
    """The events of one whole answer, and when it was given (monotonic seconds)."""

    events: tuple[Event, ...]
    at: float
    size_bytes: int


class Stats(Struct, frozen=True, kw_only=True):
    hits: int = 0
    misses: int = 0
    entries: int = 0
    size_bytes: int = 0


def is_determined(request: GenerationRequest) -> bool:
    """Whether the same request would be answered the same again."""
    sampling = request.sampling
    return request.n == 1 and (sampling.temperature == 0 or sampling.seed is not None)


def cache_key(request: GenerationRequest, *, model_identity: str, key_name: str | None) -> bytes:
    """32 bytes. What does not change the answer (id, tier, prediction) is left out; other keys' answers stay theirs."""
    sampling = request.sampling
    biases = sorted(sampling.logit_bias.items())  # apart: keys of a dict that is put in order must be text
    plain = structs.replace(
        request,
        request_id="",
        tier=Tier.DEFAULT,
        prediction=None,
        cache_prompt=True,
        sampling=structs.replace(sampling, logit_bias={}),
    )
    return hashlib.sha256(_encoder.encode((model_identity, key_name, biases, plain))).digest()


class ExactCache:
    """Least recently used goes first. ``ttl_s`` counts from when the answer was given."""

    def __init__(self, *, max_bytes: int, ttl_s: float) -> None:
        self.max_bytes = max_bytes
        self.ttl_s = ttl_s
        self._kept: OrderedDict[bytes, Kept] = OrderedDict()
        self._size = 0
        self._hits = 0
        self._misses = 0

    @property
    def stats(self) -> Stats:
        return Stats(hits=self._hits, misses=self._misses, entries=len(self._kept), size_bytes=self._size)

    def get(self, key: bytes, now: float) -> tuple[Event, ...] | None:
        kept = self._kept.get(key)
        if kept is not None and now - kept.at >= self.ttl_s:
            self._drop(key)
            kept = None
        if kept is None:
            self._misses += 1
            return None
        self._hits += 1
        self._kept.move_to_end(key)
        return kept.events

    def put(self, key: bytes, events: Sequence[Event], now: float) -> None:
        """Keep a whole answer. Progress of its prefill is left out; one larger than a tenth of the cache is not kept."""
        whole = tuple(e for e in events if not isinstance(e, Progress))
        size = len(_encoder.encode(whole))
        if size > self.max_bytes // 10:
            return
        if key in self._kept:
            self._drop(key)
        self._kept[key] = Kept(whole, now, size)
        self._size += size
        while self._size > self.max_bytes:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        self._kept.clear()
        self._size = 0

    def _drop(self, key: bytes) -> None:
        self._size -= self._kept.pop(key).size_bytes
