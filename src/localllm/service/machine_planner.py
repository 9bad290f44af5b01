"""The manager's planner on the real machine: ``core.plan`` fed with what the probes and the file's header say."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from localllm.core.config import EngineSettings
from localllm.core.control import LoadRequest
from localllm.core.errors import GGUFError
from localllm.core.facts import ModelFacts, facts_from_header
from localllm.core.learn import Corrections
from localllm.core.machine import Device, Machine
from localllm.core.memory import DEFAULT_ENGINE, HABITS, Estimator, Extras, MemoryEstimate
from localllm.core.plan import Profile, Wish, plan_load
from localllm.engines.tuning import TuningFile, quiet_threads
from localllm.hardware.devices import load_device_table
from localllm.hub.gguf_file import read_header
from localllm.hub.store import StoredModel
from localllm.service.learning import Learning
from localllm.service.machine import MachineReadings
from localllm.service.planning import Planned

_FACTS_KEPT = 32


class MachinePlanner:
    """``Planning`` on the real machine. The planner runs in a thread; headers are read once per file.

    ``request.engine`` names the engine that will load, whose habits and whose earlier loads count.
    """

    def __init__(
        self,
        settings: EngineSettings,
        machine: MachineReadings,
        tuning: TuningFile | None = None,
        learning: Learning | None = None,
    ) -> None:
        self._settings = settings
        self._machine = machine
        self._tuning = tuning
        self._learning = learning
        self._device_table = load_device_table()
        self._facts: dict[tuple[str, int, int], ModelFacts] = {}

    async def devices(self) -> tuple[Device, ...]:
        return (await self._machine.get(newer_than_s=0.0)).devices

    async def facts(self, model: StoredModel) -> ModelFacts:
        """The figures in the model's header.

        Raises:
            GGUFError: the file is gone or no model we can read.
        """
        return await asyncio.to_thread(self._read_facts, model)

    async def plan(
        self,
        model: StoredModel,
        request: LoadRequest,
        available_bytes: Mapping[str, int],
        *,
        embedding: bool = False,
    ) -> Planned:
        facts = await self.facts(model)
        machine = await self._machine.get()
        settings = self._settings
        wish = Wish(
            context_length=request.context_length or (None if request.profile else settings.context_length),
            parallel=request.parallel or settings.parallel,
            kv_type=request.kv_type or settings.kv_type,
            gpu_layers=request.gpu_layers if request.gpu_layers is not None else settings.gpu_layers,
            threads=request.threads or settings.threads,
            available_bytes=dict(available_bytes),
            engine=request.engine,
            embedding=embedding,
            profile=Profile(request.profile) if request.profile else None,
            force=request.force,
        )
        wish = await asyncio.to_thread(self._with_threads, wish, model, machine)
        extras = Extras(projector=_size(model.mmproj_path)) if model.mmproj_path else None
        taught = await self._taught(request.engine)
        plan = await asyncio.to_thread(
            plan_load,
            facts,
            machine,
            wish,
            model_path=str(model.path),
            chat_template=model.chat_template,
            stop=model.stop,
            mmproj_path=str(model.mmproj_path) if model.mmproj_path else None,
            extras=extras,
            device_table=self._device_table,
            corrections=taught,
        )
        memory = plan.memory
        if taught.factors:
            habits = HABITS.get(request.engine or DEFAULT_ENGINE)
            memory = Estimator(facts, machine.gpus, extras=extras, habits=habits).estimate(plan.launch)
        return Planned(
            launch=plan.launch,
            bytes_by_device=claims(plan.memory, machine),
            total_bytes=plan.memory.total_bytes,
            memory=memory,
            total_layers=facts.n_layer + 1,
            reason=plan.reason,
            warnings=plan.warnings,
        )

    async def _taught(self, engine: str | None) -> Corrections:
        """What earlier loads with ``engine`` (None = the usual one) taught about this machine."""
        return await self._learning.corrections(engine or DEFAULT_ENGINE) if self._learning else Corrections()

    def _with_threads(self, wish: Wish, model: StoredModel, machine: Machine) -> Wish:
        """What nobody has said about threads and batches: as tuned here, else so many as are not busy now."""
        if machine.gpus:
            return wish  # the CPU has little to do then
        tuned = self._tuning.find(model.key, machine.cpu.name) if self._tuning else None
        if tuned is None:
            threads = wish.threads or quiet_threads(machine.cpu.cores or os.cpu_count() or 1, _load_average())
            return structs.replace(wish, threads=threads)
        if wish.threads is not None:
            return structs.replace(wish, ubatch=tuned.ubatch)
        return structs.replace(
            wish, threads=tuned.threads, batch_threads=tuned.batch_threads, ubatch=tuned.ubatch
        )

    def _read_facts(self, model: StoredModel) -> ModelFacts:
        try:
            status = model.path.stat()
        except OSError as error:
            raise GGUFError(
                f"The file of {model.name!r} is gone: {model.path}.",
                hint=f"Put it back, or remove the model: localllm rm {model.name}",
            ) from error
        key = (str(model.path), status.st_mtime_ns, status.st_size)
        if key not in self._facts:
            if len(self._facts) >= _FACTS_KEPT:
                self._facts.pop(next(iter(self._facts)))
            self._facts[key] = facts_from_header(read_header(model.path))
        return self._facts[key]


def _load_average() -> float | None:
    """Processes that wanted a processor over the last minute; None where the system does not count."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def claims(memory: MemoryEstimate, machine: Machine) -> dict[str, int]:
    """An estimate as the ledger keeps it: what a GPU with unified memory takes, it takes from the host as well."""
    found = {device.device_id: device.total for device in memory.devices}
    for gpu in machine.gpus:
        if gpu.unified:
            found[machine.cpu.id] = found.get(machine.cpu.id, 0) + found.get(gpu.id, 0)
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
