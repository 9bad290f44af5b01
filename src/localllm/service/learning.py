"""Each load teaches the planner: what the engine says it allocated is laid beside the plan, and corrects the next one.

Residuals hold for one device, backend and build of an engine; an engine that cannot name its build teaches nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from localllm.core.engine_log import LoggedBuffer
from localllm.core.learn import Corrections, Observation, corrections_from, observe
from localllm.core.memory import MemoryEstimate
from localllm.engines.base import BufferReport, Engine, InstanceInfo
from localllm.engines.residuals import ResidualFile, newest
from localllm.service.machine import MachineReadings

log = logging.getLogger(__name__)


class Learning:
    """Belongs to the event loop; the file is read once and written in a thread, one write at a time."""

    def __init__(self, file: ResidualFile, engines: Mapping[str, Engine], machine: MachineReadings) -> None:
        self._file = file
        self._engines = engines
        self._machine = machine
        self._seen: tuple[Observation, ...] | None = None
        self._turn = asyncio.Lock()

    async def corrections(self, engine: str) -> Corrections:
        """What earlier loads here, with the build of ``engine`` that is installed now, have taught."""
        build = await self._build(engine)
        if build is None:
            return Corrections()
        machine = await self._machine.get()
        async with self._turn:
            seen = await self._read()
        return corrections_from(seen, {device.id: build for device in machine.devices})

    async def learn(self, planned: MemoryEstimate | None, info: InstanceInfo) -> None:
        """Keep what a load took. ``planned`` is the estimate before any correction, or errors would be learned twice."""
        build = await self._build(info.engine)
        if build is None or planned is None:
            return
        machine = await self._machine.get()
        found = observe(planned, _logged(info.buffers), machine.gpus, build=build, at=time.time())
        if not found:
            return
        for seen in found:
            log.info(
                "planned against measured",
                extra={
                    "device": seen.ground.device_id,
                    "part": seen.part,
                    "planned_bytes": seen.planned_bytes,
                    "measured_bytes": seen.measured_bytes,
                },
            )
        async with self._turn:
            self._seen = newest((*await self._read(), *found))
            try:
                await asyncio.to_thread(self._file.write, self._seen)
            except OSError as error:
                log.warning("what a load taught could not be kept", extra={"error": str(error)})

    async def _read(self) -> tuple[Observation, ...]:
        if self._seen is None:
            self._seen = await asyncio.to_thread(self._file.read)
        return self._seen

    async def _build(self, engine: str) -> str | None:
        if engine not in self._engines:
            return None
        version = (await self._engines[engine].status()).version
        return f"{engine} {version}" if version else None


def _logged(buffers: tuple[BufferReport, ...]) -> tuple[LoggedBuffer, ...]:
    """The buffers whose kind the planner plans; others are left out."""
    found = []
    for buffer in buffers:
        match buffer.kind:
            case "weights" | "kv" | "recurrent" | "compute" | "output":
                found.append(LoggedBuffer(buffer.kind, buffer.device, buffer.bytes))
            case _:
                continue
    return tuple(found)
