"""What the plots show: five minutes second by second, an hour in steps of ten seconds, in memory only."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from localllm.core.control import History, Series

FINE_S = 300
COARSE_S = 3600
_STEP_S = 10.0

Reading = Mapping[str, float | None]

UNITS = {
    "tokens_per_second": "tok/s",
    "prefill_tokens_per_second": "tok/s",
    "ttft_ms": "ms",
    "tpot_ms": "ms",
    "running": "requests",
    "waiting": "requests",
    "kv_used_tokens": "tokens",
}
_DEVICE_UNITS = {"memory_used_bytes": "bytes", "utilisation_percent": "%", "temperature_celsius": "°C"}


class HistoryRing:
    """Readings by Unix time. A name may come and go (a device, a model): gaps are None."""

    def __init__(self) -> None:
        self._fine: deque[tuple[float, Reading]] = deque()
        self._coarse: deque[tuple[float, Reading]] = deque()

    def add(self, at: float, reading: Reading) -> None:
        """Keep a reading; one in ten seconds goes to the coarse ring. A clock that was set back starts afresh."""
        if self._fine and at < self._fine[-1][0]:
            self._fine.clear()
            self._coarse.clear()
        self._fine.append((at, reading))
        if not self._coarse or at - self._coarse[-1][0] >= _STEP_S:
            self._coarse.append((at, reading))
        _drop_before(self._fine, at - FINE_S)
        _drop_before(self._coarse, at - COARSE_S)

    def last(self, seconds: float, now: float) -> History:
        """The readings of the last ``seconds``; up to five minutes in full detail."""
        ring = self._fine if seconds <= FINE_S else self._coarse
        kept = [(at, reading) for at, reading in ring if at >= now - seconds]
        names = sorted({name for _, reading in kept for name in reading})
        return History(
            times=tuple(at for at, _ in kept),
            series=tuple(
                Series(name=name, unit=_unit(name), values=tuple(r.get(name) for _, r in kept))
                for name in names
            ),
        )


def _unit(name: str) -> str:
    return UNITS.get(name) or _DEVICE_UNITS.get(name.rpartition(":")[2], "")


def _drop_before(ring: deque[tuple[float, Reading]], oldest: float) -> None:
    while ring and ring[0][0] < oldest:
        ring.popleft()
