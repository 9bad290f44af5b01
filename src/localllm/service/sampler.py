"""Reads devices and models as often as somebody needs it: each second while watched, seldom otherwise.

An idle service must cost next to nothing, so without watchers it reads only every ten seconds while a model is
loaded, and each minute when none is. Readings are taken in a thread: a driver may hang.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from localllm.core.control import Live
from localllm.core.errors import LocalLLMError
from localllm.core.machine import DeviceSample
from localllm.service.activity import Activity
from localllm.service.history import HistoryRing
from localllm.service.manager import Manager

_WATCHED_S = 1.0
_LOADED_S = 10.0
_IDLE_S = 60.0
_STATS_DEADLINE_S = 2.0


class DeviceReader(Protocol):
    def sample(self) -> tuple[DeviceSample, ...]: ...


class ServiceSampler:
    """``reader`` makes the device reader at the first sample, in the thread, since it opens drivers."""

    def __init__(
        self,
        manager: Manager,
        activity: Activity,
        history: HistoryRing,
        *,
        reader: Callable[[], DeviceReader],
        watched: Callable[[], bool],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.devices: tuple[DeviceSample, ...] = ()
        self._manager = manager
        self._activity = activity
        self._history = history
        self._make_reader = reader
        self._reader: DeviceReader | None = None
        self._watched = watched
        self._on_change = on_change
        self._wake = asyncio.Event()

    def hurry(self) -> None:
        """Somebody came to watch: read now rather than when the long pause is over."""
        self._wake.set()

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            began = time.monotonic()
            await self.sample()
            await self._pause(began)

    async def sample(self) -> None:
        """Take one reading of everything."""
        self.devices = await asyncio.to_thread(self._read_devices)
        await self.read_engines(idle_too=self._watched())
        self._history.add(time.time(), self._reading(self._activity.live()))
        self._on_change()

    async def read_engines(self, *, idle_too: bool = True) -> None:
        """Ask the loaded models for their figures; one that does not answer in time has none."""
        for resident in self._manager.serving():
            instance = resident.instance
            if instance is None or not (idle_too or resident.slot.running):
                continue
            try:
                async with asyncio.timeout(_STATS_DEADLINE_S):
                    resident.stats = await instance.stats()
            except (LocalLLMError, TimeoutError):
                resident.stats = None

    async def _pause(self, began: float) -> None:
        self._wake.clear()
        spent = time.monotonic() - began
        try:
            async with asyncio.timeout(max(0.05, self._interval_s() - spent)):
                await self._wake.wait()
        except TimeoutError:
            return

    def _interval_s(self) -> float:
        if self._watched():
            return _WATCHED_S
        return _LOADED_S if self._manager.serving() else _IDLE_S

    def _read_devices(self) -> tuple[DeviceSample, ...]:
        if self._reader is None:
            self._reader = self._make_reader()
        return self._reader.sample()

    def _reading(self, live: Live) -> dict[str, float | None]:
        reading: dict[str, float | None] = {
            "tokens_per_second": live.tokens_per_second or 0.0,
            "prefill_tokens_per_second": live.prefill_tokens_per_second or 0.0,
            "ttft_ms": self._activity.last_ttft_ms,
            "tpot_ms": 1000 / live.tokens_per_second if live.tokens_per_second else None,
            "running": live.running,
            "waiting": live.waiting,
            "kv_used_tokens": _sum(
                r.stats.kv_used_tokens if r.stats else None for r in self._manager.serving()
            ),
        }
        for sample in self.devices:
            reading[f"{sample.id}:memory_used_bytes"] = sample.memory_used_bytes
            reading[f"{sample.id}:utilisation_percent"] = sample.utilisation_percent
            if sample.temperature_celsius is not None:
                reading[f"{sample.id}:temperature_celsius"] = sample.temperature_celsius
        return reading


def _sum(values: Iterable[int | None]) -> float | None:
    """None when nobody knows."""
    known = [value for value in values if value is not None]
    return float(sum(known)) if known else None
