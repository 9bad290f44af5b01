"""The pieces of text that the scripted engine needs in a model's place: tokens, stop strings, numbers about them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence

from localllm.core.errors import BadRequest
from localllm.core.generation import TokenLogprob

WORD = re.compile(r"\s*\S+|\s+")
_EMBEDDING_SIZE = 8


class Vocabulary:
    """Words (with the blanks before them) become numbers in the order they are first met; joined again they are the text."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [self._id(word) for word in WORD.findall(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Raises BadRequest for a number that is no token."""
        for token in tokens:
            if not 0 <= token < len(self._words):
                raise BadRequest(f"{token} is not a token of this model.", param="prompt")
        return "".join(self._words[token] for token in tokens)

    def _id(self, word: str) -> int:
        if word not in self._ids:
            self._ids[word] = len(self._words)
            self._words.append(word)
        return self._ids[word]


class StopFilter:
    """Lets text through except what is, or may still become, a stop string. ``hit`` is the one that was met."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.hit: str | None = None

    def feed(self, text: str) -> str:
        if self.hit is not None:
            return ""
        held = self._held + text
        found = [(at, stop) for stop in self._stops if (at := held.find(stop)) >= 0]
        if found:
            at, self.hit = min(found, key=lambda pair: (pair[0], -len(pair[1])))
            self._held = ""
            return held[:at]
        keep = max((_overlap(held, stop) for stop in self._stops), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of ``text`` are a beginning of ``stop``."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def logprob(data: bytes, alternatives: int) -> TokenLogprob:
    """The chosen token at probability 1/2, each alternative at half of the one before it."""

    def entry(token: bytes, rank: int) -> TokenLogprob:
        return TokenLogprob(token.decode("utf-8", "replace"), -math.log(2) * (rank + 1), token)

    others = tuple(entry(data if i == 0 else f" other{i}".encode(), i) for i in range(alternatives))
    return TokenLogprob(data.decode("utf-8", "replace"), -math.log(2), data, top=others)


def vector(text: str) -> tuple[float, ...]:
    """A unit vector drawn from the text's hash: equal texts are equal, different ones are not."""
    digest = hashlib.sha256(text.encode()).digest()
    raw = [digest[i] - 127.5 for i in range(_EMBEDDING_SIZE)]
    length = math.sqrt(sum(x * x for x in raw))
    return tuple(x / length for x in raw)
