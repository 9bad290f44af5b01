"""How fast something long goes, and how long it will still take, in figures that a person can watch without flicker."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 8.0
SAMPLE_S = 0.25
FIRST_RATE_S = 1.0
ETA_WEIGHT = 0.3


class Rate:
    """Fed with how much is done; what was done before the first reading does not count as speed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()
        self._finish_at: float | None = None

    def add(self, done: int) -> None:
        now = self._clock()
        if self._samples and now - self._samples[-1][0] < SAMPLE_S:
            return
        if self._samples and done < self._samples[-1][1]:
            self._samples.clear()  # it began anew: the old pace says nothing
        self._samples.append((now, done))
        while now - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()

    def per_second(self) -> float | None:
        """Over the last eight seconds; None until a second has been seen. Falls to 0 while nothing comes."""
        if not self._samples:
            return None
        (since, before), (_, after) = self._samples[0], self._samples[-1]
        passed = self._clock() - since
        return (after - before) / passed if passed >= FIRST_RATE_S else None

    def eta_seconds(self, left: int) -> float | None:
        """Seconds until ``left`` more are done; the moment of the end moves slowly, so that it can be read."""
        pace = self.per_second()
        if not pace:
            self._finish_at = None
            return None
        now = self._clock()
        estimate = now + left / pace
        self._finish_at = (
            estimate
            if self._finish_at is None
            else self._finish_at + ETA_WEIGHT * (estimate - self._finish_at)
        )
        return max(0.0, self._finish_at - now)
