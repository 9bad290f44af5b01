"""When a crashed engine may be started again, and when a model file is no longer tried: decisions, without a clock.

Every method takes ``now_s``, a monotonic time in seconds, so that tests need not wait. Nothing here sleeps.
"""

from __future__ import annotations

from collections import deque

_FIRST_S = 1.0
_LONGEST_S = 60.0
_WINDOW_S = 300.0
_MOST_IN_WINDOW = 5
_LOAD_CRASHES = 2


class Backoff:
    """The pause before the next start grows 1, 2, 4 … 60 s with each crash and is forgotten after five quiet minutes.

    Five crashes within five minutes mean that restarting does not help: ``given_up`` until the window has passed
    or ``reset`` (a person asked).
    """

    def __init__(self) -> None:
        self._crashes: deque[float] = deque()

    def crashed(self, now_s: float) -> None:
        self._forget(now_s)
        self._crashes.append(now_s)

    def wait_s(self, now_s: float) -> float:
        """Seconds until a start is allowed; 0 = now."""
        self._forget(now_s)
        if not self._crashes:
            return 0.0
        if len(self._crashes) >= _MOST_IN_WINDOW:
            return max(0.0, self._crashes[0] + _WINDOW_S - now_s)
        pause = min(_LONGEST_S, _FIRST_S * 2.0 ** (len(self._crashes) - 1))
        return max(0.0, self._crashes[-1] + pause - now_s)

    def given_up(self, now_s: float) -> bool:
        self._forget(now_s)
        return len(self._crashes) >= _MOST_IN_WINDOW

    def reset(self) -> None:
        self._crashes.clear()

    def _forget(self, now_s: float) -> None:
        while self._crashes and now_s - self._crashes[0] >= _WINDOW_S:
            self._crashes.popleft()


class Quarantine:
    """Model files whose load killed the engine twice. ``identity`` is whatever tells one file's content from another's.

    A file that is replaced has another identity and is tried afresh; ``release`` is for the person who insists.
    """

    def __init__(self) -> None:
        self._crashes: dict[str, int] = {}

    def load_crashed(self, identity: str) -> None:
        self._crashes[identity] = self._crashes.get(identity, 0) + 1

    def loaded(self, identity: str) -> None:
        self._crashes.pop(identity, None)

    def holds(self, identity: str) -> bool:
        return self._crashes.get(identity, 0) >= _LOAD_CRASHES

    def release(self, identity: str) -> None:
        self._crashes.pop(identity, None)
