"""Looks for trouble that no request would meet in time: an engine that hangs, a machine that woke up or runs dry.

Timeouts elsewhere count monotonic time, which stands still while the machine sleeps, so a suspend is no stall; but what
was open before it may be dead after it. Memory pressure is the kernel's own measure (PSI): the share of time in which
every task waited for memory.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path

from localllm.service.manager import Manager
from localllm.service.notices import Notices

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5.0
PING_EVERY_S = 30.0
PRESSURE_PERCENT = 10.0
_SLEPT_S = 5.0
_NOTICE = "memory_pressure"
_PSI = Path("/proc/pressure/memory")
_FULL = re.compile(r"^full avg10=([\d.]+)", re.MULTILINE)


def memory_pressure_percent(path: Path = _PSI) -> float | None:
    """Share of the last ten seconds in which everything waited for memory; None where the kernel does not say."""
    try:
        found = _FULL.search(path.read_text())
    except OSError:
        return None
    return float(found[1]) if found else None


def slept_s() -> float:
    """Seconds that the machine has spent asleep since it booted; 0 where the clocks do not tell."""
    boot_clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(boot_clock) - time.monotonic() if boot_clock is not None else 0.0


class Watchdog:
    """``pressure`` and ``slept`` are replaced in tests."""

    def __init__(
        self,
        manager: Manager,
        notices: Notices,
        *,
        pressure: Callable[[], float | None] = memory_pressure_percent,
        slept: Callable[[], float] = slept_s,
    ) -> None:
        self._manager = manager
        self._notices = notices
        self._pressure = pressure
        self._slept = slept
        self._slept_before = slept()
        self._pinged = time.monotonic()

    async def run(self) -> None:
        """Look every few seconds until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()

    async def look(self) -> None:
        """One round."""
        await self._after_sleep()
        if time.monotonic() - self._pinged >= PING_EVERY_S:
            self._pinged = time.monotonic()
            await self._manager.end_unresponsive()
        await self._relieve()

    async def _after_sleep(self) -> None:
        slept = self._slept()
        if slept - self._slept_before > _SLEPT_S:
            log.info("the machine was asleep", extra={"seconds": round(slept - self._slept_before)})
            await self._manager.end_unresponsive()
        self._slept_before = slept

    async def _relieve(self) -> None:
        pressure = self._pressure()
        if pressure is None or pressure < PRESSURE_PERCENT:
            if pressure is not None:
                self._notices.clear(_NOTICE)
            return
        unloaded = await self._manager.room.relieve()
        log.warning("memory pressure", extra={"percent": pressure, "unloaded": unloaded})
        done = f"{unloaded} was unloaded" if unloaded else "nothing idle is left to unload"
        self._notices.show(_NOTICE, "warning", f"The machine is short of memory; {done}.")
