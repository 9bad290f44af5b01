"""How much prefill one step may carry: measured, so that it suits a slow CPU and a fast GPU alike."""

from __future__ import annotations

_SMALLEST_CHUNK = 16
_FIRST_CHUNK = 64
_SHORTEST_S = 1e-6
_WEIGHT = 0.3
"""Of the newest measurement in the running averages."""


class Pace:
    """Learns what a decode step and a prefilled token cost, and budgets prefill by it.

    While others decode, a step with prefill may take ``slowdown`` times a step without; alone it may take
    ``alone_s``, since a cancelled request is only noticed between steps.
    """

    def __init__(self, *, slowdown: float = 1.9, alone_s: float = 0.35) -> None:
        self._slowdown = slowdown
        self._alone_s = alone_s
        self._row_s: float | None = None
        self._token_s: float | None = None

    def budget(self, decode_rows: int, most: int) -> int:
        """Prompt tokens that fit beside ``decode_rows`` rows, at most ``most``."""
        if self._token_s is None or (decode_rows and self._row_s is None):
            wanted = _FIRST_CHUNK
        elif decode_rows and self._row_s is not None:
            wanted = int((self._slowdown - 1) * self._row_s * decode_rows / self._token_s)
        else:
            wanted = int(self._alone_s / self._token_s)
        return max(min(_SMALLEST_CHUNK, most), min(wanted, most))

    def learn(self, seconds: float, decode_rows: int, prefill_tokens: int) -> None:
        """One step took ``seconds``. Rows share fixed costs, so theirs is the cost at the current number of rows."""
        seconds = max(seconds, _SHORTEST_S)
        if decode_rows and not prefill_tokens:
            self._row_s = _blend(self._row_s, seconds / decode_rows)
        elif prefill_tokens:
            decode_s = (self._row_s or 0.0) * decode_rows
            self._token_s = _blend(self._token_s, max(seconds - decode_s, seconds / 20) / prefill_tokens)


def _blend(old: float | None, new: float) -> float:
    return new if old is None else old + _WEIGHT * (new - old)
