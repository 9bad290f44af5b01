"""The machine as the service last read it: probing takes a moment and blocks, so readings are shared and dated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from localllm.core.machine import Machine

_FRESH_FOR_S = 30.0


class MachineReadings:
    """``detect`` runs in a thread; concurrent askers share one reading."""

    def __init__(self, detect: Callable[[], Machine]) -> None:
        self._detect = detect
        self._last: Machine | None = None
        self._read_at = 0.0
        self._turn = asyncio.Lock()

    async def get(self, *, newer_than_s: float = _FRESH_FOR_S) -> Machine:
        """A reading that is at most ``newer_than_s`` seconds old."""
        asked = time.monotonic()
        async with self._turn:
            if self._last is None or self._read_at < asked - newer_than_s:
                # dated by its beginning: what changed meanwhile may not be in it
                began = time.monotonic()
                self._last = await asyncio.to_thread(self._detect)
                self._read_at = began
            return self._last

    def get_in_thread(self) -> Machine:
        """For a thread that may block: the last reading, or a first one."""
        if self._last is None:
            self._last, self._read_at = self._detect(), time.monotonic()
        return self._last
