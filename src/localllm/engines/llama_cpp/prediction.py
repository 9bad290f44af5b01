"""Predicted outputs: drafting the next tokens from text the answer is expected to repeat.

Drafts are only ever checked against what the model would have said, so the text is the same with and without them;
all that is decided here is which tokens are worth checking, and how many. The predictor walks a cursor through the
prediction. After a difference it looks for the last few generated tokens further on (an edit was inserted, changed
or left out), and if they are nowhere in the prediction, in the prompt and the answer itself.
"""

from __future__ import annotations

from collections.abc import Sequence

_SHORTEST_DRAFT = 4
_LONGEST_DRAFT = 32
_SUFFIX = 3
"""Tokens that must agree before the cursor moves to another place."""
_PAUSE = 32
"""Longest pause, in tokens, after drafts that were all wrong."""


class SuffixIndex:
    """Where each run of three tokens ends in a growing sequence."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        self.tokens.append(token)
        if len(self.tokens) >= _SUFFIX:
            self._ends.setdefault(tuple(self.tokens[-_SUFFIX:]), []).append(len(self.tokens))

    def after(self, recent: Sequence[int], near: int) -> int | None:
        """The position that follows ``recent`` here: the longest agreement (up to 8), then the nearest to ``near``."""
        if len(recent) < _SUFFIX:
            return None
        ends = self._ends.get(tuple(recent[-_SUFFIX:]), ())
        best: tuple[int, int, int] | None = None
        for end in ends[-256:]:
            if end >= len(self.tokens):
                continue
            agreement = _SUFFIX
            while (
                agreement < min(8, len(recent), end)
                and self.tokens[end - agreement - 1] == recent[-agreement - 1]
            ):
                agreement += 1
            key = (agreement, -abs(end - near), end)
            if best is None or key > best:
                best = key
        return best[2] if best else None


class Predictor:
    """Drafts for one answer. ``prediction`` None looks only at the prompt and the answer (prompt lookup)."""

    def __init__(self, prediction: Sequence[int] | None, prompt: Sequence[int]) -> None:
        self._prediction = SuffixIndex(prediction or ())
        self._seen: SuffixIndex | None = None
        self._prompt = prompt
        self._recent: list[int] = []
        self._cursor: int | None = 0 if prediction else None
        self._source = self._prediction
        self._size = _SHORTEST_DRAFT
        self._misses = 0
        self._pause = 0
        self._generated: list[int] = []

    def draft(self, most: int) -> list[int]:
        """Up to ``most`` tokens that may come next; empty when there is no good guess."""
        if most <= 0 or self._pause > 0:
            return []
        if self._cursor is None:
            self._resume()
        if self._cursor is None:
            return []
        return self._source.tokens[self._cursor : self._cursor + min(most, self._size)]

    def advance(self, tokens: Sequence[int], drafted: int) -> None:
        """The step brought ``tokens``; all but the last were among its ``drafted`` drafts."""
        agreed = len(tokens) - 1
        self._generated.extend(tokens)
        self._recent = (self._recent + list(tokens))[-8:]
        if self._seen is not None:
            for token in tokens:
                self._seen.append(token)
        if not drafted:
            self._pause = max(0, self._pause - len(tokens))
            self._follow(tokens)
        elif agreed == drafted:
            self._size = min(_LONGEST_DRAFT, self._size * 2)
            self._misses = 0
            self._move(agreed, tokens[-1])
        else:
            self._size = max(_SHORTEST_DRAFT, self._size // 2)
            self._misses = self._misses + 1 if not agreed else 0
            self._pause = min(_PAUSE, 2**self._misses) if self._misses >= 2 else 0
            self._cursor = None

    def _follow(self, tokens: Sequence[int]) -> None:
        """Without drafts: stay on the cursor while the text agrees with it."""
        for token in tokens:
            self._move(0, token)

    def _move(self, agreed: int, last: int) -> None:
        if self._cursor is None:
            return
        at = self._cursor + agreed
        tokens = self._source.tokens
        self._cursor = at + 1 if at < len(tokens) and tokens[at] == last else None

    def _resume(self) -> None:
        near = len(self._generated)
        at = self._prediction.after(self._recent, near)
        self._source = self._prediction
        if at is None:
            if self._seen is None:
                self._seen = SuffixIndex([*self._prompt, *self._generated])
            at = self._seen.after(self._recent, len(self._seen.tokens))
            self._source = self._seen
        self._cursor = at
