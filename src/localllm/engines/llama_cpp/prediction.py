"""Predicted outputs: drafting the next tokens from text the answer is expected to repeat.

Drafts are only ever checked against what the model says itself, so the text is the same with and without them; all
that is decided here is which tokens are worth checking, and how many. A predictor walks a cursor through the
prediction. After a difference it looks for the last few generated tokens further on (an edit was inserted, changed or
left out), and if they are nowhere in the prediction, in the prompt and the answer itself. Checking a token costs part
of a step even when it is rejected, so drafts are paid from a budget that only accepted ones fill up: a useless
prediction costs at most a few per cent.
"""

from __future__ import annotations

from collections.abc import Sequence

_FIRST_DRAFT = 7
_SHORTEST_DRAFT = 3
_LONGEST_DRAFT = 31
"""With the newest token these make 8, 4 and 32 rows: kernels compute rows in tiles of 4 and 8, and on a CPU five rows
cost more than eight."""
_SUFFIX = 3
"""Tokens that must agree before the cursor moves to another place in the prediction."""
_LOOKUP_SUFFIX = 5
"""The same for the prompt and the answer, which were not said to be repeated."""
_LONGEST_SUFFIX = 8
_PLACES = 256
"""Places looked at for one suffix, newest first."""
_FIRST_BUDGET = 3.0
_BUDGET_PER_TOKEN = 0.04
"""Budgets are in steps; this is the share of all steps that useless drafts may cost."""


class SuffixIndex:
    """Where each run of three tokens ends in a growing sequence."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.tokens.append(token)
            if len(self.tokens) >= _SUFFIX:
                self._ends.setdefault(tuple(self.tokens[-_SUFFIX:]), []).append(len(self.tokens))

    def after(self, recent: Sequence[int], *, least: int, near: int) -> int | None:
        """The position that follows ``recent`` here.

        At least ``least`` tokens agree; the longest agreement (up to 8) wins, then the place nearest to ``near``.
        """
        if len(recent) < least:
            return None
        best: tuple[int, int, int] | None = None
        for end in self._ends.get(tuple(recent[-_SUFFIX:]), [])[-_PLACES:]:
            agreement = self._agreement(recent, end)
            if agreement >= least and end < len(self.tokens):
                found = (agreement, -abs(end - near), end)
                best = found if best is None else max(best, found)
        return best[2] if best else None

    def _agreement(self, recent: Sequence[int], end: int) -> int:
        most = min(_LONGEST_SUFFIX, len(recent), end)
        count = _SUFFIX
        while count < most and self.tokens[end - count - 1] == recent[-count - 1]:
            count += 1
        return count


class Predictor:
    """Drafts for one answer; ``prompt`` is where to look when the prediction has nothing to offer."""

    def __init__(self, prediction: Sequence[int], prompt: Sequence[int]) -> None:
        self._prediction = SuffixIndex(prediction)
        self._seen = SuffixIndex(prompt)
        self._source = self._prediction
        self._cursor: int | None = 0
        self._generated = 0
        self._size = _FIRST_DRAFT
        self._budget = _FIRST_BUDGET

    def draft(self, most: int) -> list[int]:
        """Up to ``most`` tokens that may come next; empty when there is no good guess or no budget."""
        if most <= 0 or self._budget <= 0:
            return []
        if self._cursor is None:
            self._find_place()
        if self._cursor is None:
            return []
        return self._source.tokens[self._cursor : self._cursor + min(most, self._size)]

    def advance(self, tokens: Sequence[int], drafted: int, cost: float) -> None:
        """The step brought ``tokens``; all but the last of them were among its ``drafted`` drafts.

        ``cost`` is what the drafts added to the step, in steps without any.
        """
        accepted = len(tokens) - 1
        self._seen.extend(tokens)
        self._generated += len(tokens)
        self._budget += accepted - cost + len(tokens) * _BUDGET_PER_TOKEN
        if drafted:
            agreed = accepted == drafted
            self._size = (
                min(_LONGEST_DRAFT, self._size * 2 + 1) if agreed else max(_SHORTEST_DRAFT, self._size // 2)
            )
        self._follow(accepted, tokens[-1])

    def _follow(self, accepted: int, last: int) -> None:
        """Move the cursor over what was accepted and the token after it, or lose the place."""
        if self._cursor is None:
            return
        at = self._cursor + accepted
        known = self._source.tokens
        self._cursor = at + 1 if at < len(known) and known[at] == last else None

    def _find_place(self) -> None:
        recent = self._seen.tokens[-_LONGEST_SUFFIX:]
        self._source = self._prediction
        # an edit moves the place by little, so the nearest to as far as we are is the likeliest
        self._cursor = self._prediction.after(recent, least=_SUFFIX, near=self._generated)
        if self._cursor is None:
            self._source = self._seen
            self._cursor = self._seen.after(recent, least=_LOOKUP_SUFFIX, near=len(self._seen.tokens))
