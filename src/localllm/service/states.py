"""The life of one loaded model as pure logic: which phase may follow which, and what is counted on the way.

absent → loading → ready ⇄ busy → draining → unloading → absent; crashed from any of them; quarantined after repeated
crashes at load. No clock, no I/O: ``service/manager.py`` performs what these transitions allow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from localllm.core.control import InstancePhase

LOAD_CRASHES_TO_QUARANTINE = 2

_LOADABLE = (None, InstancePhase.CRASHED)
_SERVING = (InstancePhase.READY, InstancePhase.BUSY)
_ALIVE = (*_SERVING, InstancePhase.DRAINING, InstancePhase.UNLOADING)


class IllegalTransition(Exception):
    """A bug in the manager: it asked for a phase that cannot follow the present one."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One model's place. ``phase`` None = absent.

    ``generation`` counts loads, so that a request admitted before a crash cannot release a place in the instance that
    came after. ``load_crashes`` are in a row; ``crashes`` are since the model last answered a request to its end.
    """

    phase: InstancePhase | None = None
    generation: int = 0
    running: int = 0
    load_crashes: int = 0
    crashes: int = 0

    @property
    def serving(self) -> bool:
        return self.phase in _SERVING

    @property
    def evictable(self) -> bool:
        """Whether it may be unloaded for another model's sake: loaded, and nothing runs on it."""
        return self.phase is InstancePhase.READY

    def load(self, *, force: bool = False) -> Slot:
        """Begin loading; a quarantined model only with ``force``, which also forgets its crashes."""
        if self.phase is InstancePhase.QUARANTINED and force:
            return Slot(InstancePhase.LOADING, self.generation + 1)
        self._expect(*_LOADABLE)
        return replace(self, phase=InstancePhase.LOADING, generation=self.generation + 1, running=0)

    def loaded(self) -> Slot:
        self._expect(InstancePhase.LOADING)
        return replace(self, phase=InstancePhase.READY, load_crashes=0)

    def load_failed(self, *, crashed: bool) -> Slot:
        """The load ended without an instance; ``crashed`` = the engine's process died of it."""
        self._expect(InstancePhase.LOADING)
        if not crashed:
            return replace(self, phase=None)
        crashes = self.load_crashes + 1
        quarantined = crashes >= LOAD_CRASHES_TO_QUARANTINE
        phase = InstancePhase.QUARANTINED if quarantined else InstancePhase.CRASHED
        return replace(self, phase=phase, load_crashes=crashes)

    def acquire(self) -> Slot:
        self._expect(*_SERVING)
        return replace(self, phase=InstancePhase.BUSY, running=self.running + 1)

    def release(self, generation: int, *, answered: bool = False) -> Slot:
        """One request ended; ``answered`` = to its end. Requests of an earlier generation change nothing."""
        if generation != self.generation or self.phase not in (InstancePhase.BUSY, InstancePhase.DRAINING):
            return self
        if self.running == 0:
            raise IllegalTransition(f"release of an idle model ({self.phase})")
        running = self.running - 1
        phase = InstancePhase.READY if running == 0 and self.phase is InstancePhase.BUSY else self.phase
        return replace(self, phase=phase, running=running, crashes=0 if answered else self.crashes)

    def drain(self) -> Slot:
        """Admit nothing more; what runs may end."""
        self._expect(*_SERVING)
        return replace(self, phase=InstancePhase.DRAINING)

    def unload(self) -> Slot:
        """Begin unloading; what still runs is cut off, so callers drain first unless they mean to."""
        self._expect(InstancePhase.DRAINING)
        return replace(self, phase=InstancePhase.UNLOADING, running=0)

    def unloaded(self) -> Slot:
        self._expect(InstancePhase.UNLOADING)
        return replace(self, phase=None)

    def crash(self) -> Slot:
        """The process died while it was loaded. One that dies while it is unloaded is simply gone."""
        self._expect(*_ALIVE)
        if self.phase is InstancePhase.UNLOADING:
            return replace(self, phase=None)
        return replace(self, phase=InstancePhase.CRASHED, running=0, crashes=self.crashes + 1)

    def forget(self) -> Slot:
        """Clear away a crashed or quarantined model, its history included."""
        self._expect(InstancePhase.CRASHED, InstancePhase.QUARANTINED)
        return Slot(generation=self.generation)

    def _expect(self, *phases: InstancePhase | None) -> None:
        if self.phase not in phases:
            raise IllegalTransition(f"not possible while {self.phase or 'absent'}")
