"""The life of one model, walked at random: no sequence of allowed transitions breaks an invariant."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from localllm.core.control import InstancePhase
from localllm.service.states import LOAD_CRASHES_TO_QUARANTINE, IllegalTransition, Slot

READY = Slot().load().loaded()


class LifeOfASlot(RuleBasedStateMachine):
    """Requests are remembered with the generation that admitted them, as the manager does."""

    @initialize()
    def begin(self) -> None:
        self.slot = Slot()
        self.requests: list[int] = []
        self.crashes_in_a_row = 0

    @precondition(lambda self: self.slot.phase in (None, InstancePhase.CRASHED))
    @rule()
    def load(self) -> None:
        before = self.slot.generation
        self.slot = self.slot.load()
        assert self.slot.generation == before + 1

    @precondition(lambda self: self.slot.phase is InstancePhase.QUARANTINED)
    @rule()
    def load_by_force(self) -> None:
        with pytest.raises(IllegalTransition):
            self.slot.load()
        self.slot = self.slot.load(force=True)
        self.crashes_in_a_row = 0

    @precondition(lambda self: self.slot.phase is InstancePhase.LOADING)
    @rule()
    def loaded(self) -> None:
        self.slot = self.slot.loaded()
        self.crashes_in_a_row = 0

    @precondition(lambda self: self.slot.phase is InstancePhase.LOADING)
    @rule()
    def load_refused(self) -> None:
        self.slot = self.slot.load_failed(crashed=False)

    @precondition(lambda self: self.slot.phase is InstancePhase.LOADING)
    @rule()
    def load_crashed(self) -> None:
        self.slot = self.slot.load_failed(crashed=True)
        self.crashes_in_a_row += 1

    @precondition(lambda self: self.slot.serving)
    @rule()
    def acquire(self) -> None:
        self.slot = self.slot.acquire()
        self.requests.append(self.slot.generation)

    @precondition(lambda self: self.requests)
    @rule()
    def release(self) -> None:
        self.slot = self.slot.release(self.requests.pop(), answered=True)

    @precondition(lambda self: self.slot.serving)
    @rule()
    def drain(self) -> None:
        self.slot = self.slot.drain()

    @precondition(lambda self: self.slot.phase is InstancePhase.DRAINING)
    @rule()
    def unload(self) -> None:
        self.slot = self.slot.unload()

    @precondition(lambda self: self.slot.phase is InstancePhase.UNLOADING)
    @rule()
    def unloaded(self) -> None:
        self.slot = self.slot.unloaded()

    @precondition(
        lambda self: self.slot.serving or self.slot.phase in (InstancePhase.DRAINING, InstancePhase.UNLOADING)
    )
    @rule()
    def crash(self) -> None:
        self.slot = self.slot.crash()

    @precondition(lambda self: self.slot.phase in (InstancePhase.CRASHED, InstancePhase.QUARANTINED))
    @rule()
    def forget(self) -> None:
        self.slot = self.slot.forget()
        self.crashes_in_a_row = 0

    @invariant()
    def counts_are_the_requests_of_this_generation(self) -> None:
        mine = self.requests.count(self.slot.generation)
        if self.slot.phase in (InstancePhase.BUSY, InstancePhase.DRAINING):
            assert self.slot.running == mine
        else:
            assert self.slot.running == 0

    @invariant()
    def busy_means_running(self) -> None:
        assert (self.slot.phase is not InstancePhase.BUSY) or self.slot.running > 0
        assert not self.slot.evictable or self.slot.running == 0

    @invariant()
    def quarantine_needs_crashes_in_a_row(self) -> None:
        if self.slot.phase is InstancePhase.QUARANTINED:
            assert self.crashes_in_a_row >= LOAD_CRASHES_TO_QUARANTINE


# 200 walks of 50 steps: ten thousand transitions
LifeOfASlot.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestLifeOfASlot = LifeOfASlot.TestCase


def test_a_request_of_an_earlier_generation_changes_nothing() -> None:
    slot = READY.acquire()
    old = slot.generation
    reloaded = slot.crash().load().loaded().acquire()

    assert reloaded.release(old) == reloaded


def test_draining_admits_nothing_and_waits_for_what_runs() -> None:
    slot = READY.acquire().drain()

    with pytest.raises(IllegalTransition):
        slot.acquire()
    assert slot.release(slot.generation).phase is InstancePhase.DRAINING
    assert slot.release(slot.generation).running == 0


def test_two_load_crashes_in_a_row_quarantine_and_a_good_load_forgives() -> None:
    once = Slot().load().load_failed(crashed=True)
    assert once.phase is InstancePhase.CRASHED
    assert once.load().load_failed(crashed=True).phase is InstancePhase.QUARANTINED
    assert once.load().loaded().load_crashes == 0


def test_an_engine_that_dies_while_it_is_unloaded_is_simply_gone() -> None:
    assert READY.drain().unload().crash().phase is None


def test_an_answer_to_its_end_forgives_earlier_crashes() -> None:
    slot = replace(READY, crashes=3).acquire()

    assert slot.release(slot.generation, answered=True).crashes == 0
    assert slot.release(slot.generation).crashes == 3
