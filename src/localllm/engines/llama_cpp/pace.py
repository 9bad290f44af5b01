"""What a step costs, measured: how much prefill one may carry, and what checking drafts adds to it.

Nothing here is known beforehand, so that it suits a slow CPU and a fast GPU alike.
"""

from __future__ import annotations

_SMALLEST_CHUNK = 16
_FIRST_CHUNK = 64
_TILE = 8
"""Kernels compute tokens in tiles of four or eight; a last one of three costs as much as a whole tile or more."""
_SHORTEST_S = 1e-6
_FIRST_ROW_COST = 0.4
"""What one more decoded row adds to a step before it was measured, as a part of a step with one row."""
_WEIGHT = 0.3
"""Of the newest measurement in the running averages."""


class Pace:
    """Learns what decoding and prefill cost, and budgets prefill by it.

    While others decode, a step with prefill may take ``slowdown`` times a step without; alone it may take
    ``alone_s``, since a cancelled request is only noticed between steps.
    """

    def __init__(self, *, slowdown: float = 1.9, alone_s: float = 0.35) -> None:
        self._slowdown = slowdown
        self._alone_s = alone_s
        self._decode_s: dict[int, float] = {}
        self._token_s: float | None = None

    def budget(self, decode_rows: int, most: int) -> int:
        """Prompt tokens that fit beside ``decode_rows`` rows, at most ``most``."""
        if self._token_s is None:
            wanted = _FIRST_CHUNK
        elif decode_rows:
            wanted = int((self._slowdown - 1) * self._decoding(decode_rows) / self._token_s)
        else:
            wanted = int(self._alone_s / self._token_s)
        wanted = max(_SMALLEST_CHUNK, wanted)
        return min(most, wanted - (wanted + decode_rows) % _TILE)

    def extra_steps(self, rows: int, extra_rows: int) -> float:
        """What ``extra_rows`` of a step's ``rows`` added to it, in steps that decode one row."""
        if not extra_rows:
            return 0.0
        single = self._decoding(1)
        return (self._decoding(rows) - self._decoding(rows - extra_rows)) / single

    def learn(self, seconds: float, decode_rows: int, prefill_tokens: int) -> None:
        """One step took ``seconds``."""
        seconds = max(seconds, _SHORTEST_S)
        if prefill_tokens:
            decode_s = self._decoding(decode_rows) if decode_rows else 0.0
            token_s = max(seconds - decode_s, seconds / 20) / prefill_tokens
            self._token_s = _blend(self._token_s, token_s)
        elif decode_rows:
            self._decode_s[decode_rows] = _blend(self._decode_s.get(decode_rows), seconds)

    def _decoding(self, rows: int) -> float:
        """Seconds of a step with ``rows`` rows: measured, else scaled from the nearest number that was."""
        known = self._decode_s.get(rows)
        if known is not None:
            return known
        if not self._decode_s:
            return _SHORTEST_S * _rows_factor(rows)
        nearest = min(self._decode_s, key=lambda other: abs(other - rows))
        return self._decode_s[nearest] * _rows_factor(rows) / _rows_factor(nearest)


def _rows_factor(rows: int) -> float:
    return 1 + _FIRST_ROW_COST * (rows - 1)


def _blend(old: float | None, new: float) -> float:
    return new if old is None else old + _WEIGHT * (new - old)
