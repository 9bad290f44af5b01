"""What the app knows, as one frozen value: the service's state, the link to it, and the pace of the last minute.

The App holds the only `AppState`; it changes by being replaced. Screens get it as a reactive and hand it on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from localllm.core.control import InstancePhase, InstanceState, State, StateDelta
from localllm.core.machine import DeviceKind, DeviceSample

PACE_SECONDS = 60.0
PACE_BUCKETS = 8


class Link(StrEnum):
    """How the app stands with the service."""

    CONNECTING = "connecting"
    UP = "up"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class AppState:
    """``pace`` are (time, decode tokens per second) readings of the last minute, oldest first; ``at`` is the Unix time
    of the newest news, against which ages are drawn."""

    link: Link = Link.CONNECTING
    service: State | None = None
    trouble: str | None = None
    pace: tuple[tuple[float, float], ...] = ()
    at: float = 0.0

    def with_snapshot(self, state: State, now: float) -> AppState:
        """Everything anew, as the service sends it first on each connection."""
        return replace(
            self, link=Link.UP, service=state, trouble=None, pace=_paced(self.pace, state, now), at=now
        )

    def with_delta(self, delta: StateDelta, now: float) -> AppState:
        """The sections that changed; a delta before any snapshot says nothing and is ignored."""
        if self.service is None:
            return self
        changes = {
            name: value for name in delta.__struct_fields__ if (value := getattr(delta, name)) is not None
        }
        state = msgspec.structs.replace(self.service, **changes)
        return replace(
            self, link=Link.UP, service=state, trouble=None, pace=_paced(self.pace, state, now), at=now
        )

    def with_loss(self, trouble: str) -> AppState:
        """The line is gone; what was known stays on the screen under a banner."""
        return replace(self, link=Link.LOST, trouble=trouble)

    @property
    def address(self) -> str | None:
        """``host:port`` of the service, None before the first snapshot."""
        if self.service is None:
            return None
        identity = self.service.identity
        host = f"[{identity.host}]" if ":" in identity.host else identity.host
        return f"{host}:{identity.port}"

    @property
    def instance(self) -> InstanceState | None:
        """The instance the status strip speaks of: one that works, else the one used last, else one that loads."""
        if self.service is None or not self.service.instances:
            return None
        return max(self.service.instances, key=lambda i: (_WEIGHT[i.phase], i.last_used_at or 0.0))

    @property
    def gpus(self) -> tuple[DeviceSample, ...]:
        return tuple(d for d in self._devices if d.kind is DeviceKind.GPU)

    @property
    def cpu(self) -> DeviceSample | None:
        return next((d for d in self._devices if d.kind is not DeviceKind.GPU), None)

    @property
    def _devices(self) -> tuple[DeviceSample, ...]:
        return self.service.devices if self.service else ()

    def pace_buckets(self) -> tuple[float, ...]:
        """The last minute in `PACE_BUCKETS` means, oldest first; a bucket without a reading is 0."""
        width = PACE_SECONDS / PACE_BUCKETS
        sums = [0.0] * PACE_BUCKETS
        counts = [0] * PACE_BUCKETS
        for at, value in self.pace:
            age = self.at - at
            if 0 <= age < PACE_SECONDS:
                index = PACE_BUCKETS - 1 - int(age / width)
                sums[index] += value
                counts[index] += 1
        return tuple(s / c if c else 0.0 for s, c in zip(sums, counts, strict=True))


_WEIGHT = {
    InstancePhase.BUSY: 6,
    InstancePhase.LOADING: 5,
    InstancePhase.READY: 4,
    InstancePhase.DRAINING: 3,
    InstancePhase.UNLOADING: 2,
    InstancePhase.CRASHED: 1,
    InstancePhase.QUARANTINED: 0,
}


def _paced(
    pace: tuple[tuple[float, float], ...], state: State, now: float
) -> tuple[tuple[float, float], ...]:
    kept = tuple(reading for reading in pace if now - reading[0] < PACE_SECONDS)
    speed = state.live.tokens_per_second
    return kept if not speed else (*kept, (now, speed))
