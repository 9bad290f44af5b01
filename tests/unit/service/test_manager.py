"""The manager on the scripted engine: loading, queues, crashes, eviction, keep-alive."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from pathlib import Path

import pytest

from localllm.core.control import InstancePhase, LoadRequest, RequestPhase
from localllm.core.errors import (
    Cancelled,
    DoesNotFit,
    EngineCrashed,
    EngineStalled,
    EngineUnavailable,
    LoadFailed,
    LocalLLMError,
    ModelChanged,
    ModelInUse,
    ModelNotFound,
    NotFound,
    OutOfMemory,
    Quarantined,
    QueueFull,
    ShuttingDown,
)
from localllm.core.generation import Event
from localllm.engines.backoff import Backoff
from localllm.engines.base import Capability, LoadProgress
from localllm.service.lease import Waiting
from localllm.service.pipeline import Call
from tests.support.script import Crash, Hang, Text, Wait
from tests.support.until import until
from tests.unit.service.conftest import Parts


def phase(parts: Parts, name: str) -> InstancePhase | None:
    state = parts.manager.state(name)
    return state.phase if state else None


def waiting(parts: Parts, name: str = "a") -> int:
    state = parts.manager.state(name)
    return state.waiting if state else 0


def running(parts: Parts, name: str = "a") -> int:
    state = parts.manager.state(name)
    return state.running if state else 0


def crash_on_load(exit_code: int = -11) -> LoadFailed:
    return LoadFailed("It touched memory that is not its own.", details={"exit_code": exit_code})


# ---------------------------------------------------------------- loading


async def test_a_request_loads_its_model_and_hears_of_it(parts: Parts) -> None:
    heard: list[Waiting] = []
    async with parts.manager.lease("a", on_waiting=heard.append) as lease:
        assert lease.model == "a"
        assert phase(parts, "a") is InstancePhase.BUSY

    assert phase(parts, "a") is InstancePhase.READY
    assert {waiting.phase for waiting in heard} == {RequestPhase.LOADING}
    assert "weights" in [waiting.stage for waiting in heard]


async def test_concurrent_requests_join_one_load(parts: Parts) -> None:
    parts.engine.load_gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        asks = [group.create_task(parts.ask(f"hello {n}")) for n in range(3)]
        await until(lambda: waiting(parts) == 3)
        parts.engine.load_gate.set()

    assert len(parts.engine.loads) == 1
    assert all(ask.result() for ask in asks)


async def test_a_client_that_leaves_does_not_end_the_load_that_others_wait_for(parts: Parts) -> None:
    parts.engine.load_gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        leaver = group.create_task(parts.ask("I leave"))
        stayer = group.create_task(parts.ask("I stay"))
        await until(lambda: waiting(parts) == 2 and len(parts.engine.loads) == 1)
        leaver.cancel()
        await until(leaver.done)
        parts.engine.load_gate.set()

    assert stayer.result()
    assert parts.manager.state("a") is not None


async def test_unknown_models_are_named_with_near_ones(parts: Parts) -> None:
    with pytest.raises(ModelNotFound) as caught:
        await parts.ask("hi", model="c")
    assert "a" in caught.value.near


async def test_no_name_means_the_model_used_last(parts: Parts) -> None:
    await parts.ask("hi", model="a")
    await parts.ask("hi", model="b")

    assert parts.manager.resolve("").name == "b"


async def test_a_refused_load_is_told_and_the_next_request_tries_again(parts: Parts) -> None:
    parts.engine.load_failures.append(LoadFailed("no such architecture"))
    with pytest.raises(LoadFailed):
        await parts.ask("hi")
    assert phase(parts, "a") is None

    assert await parts.ask("hi")


async def test_one_retry_with_less_context_when_memory_ran_out(parts: Parts) -> None:
    parts.planning.context_length = 16_384
    parts.engine.load_failures.append(OutOfMemory("no room"))

    await parts.ask("hi")

    assert [plan.context_length for plan in parts.engine.loads] == [16_384, 8192]


async def test_a_context_that_was_asked_for_is_not_reduced_in_silence(parts: Parts) -> None:
    parts.engine.load_failures.append(OutOfMemory("no room"))
    with pytest.raises(OutOfMemory):
        await parts.manager.load(LoadRequest(model="a", context_length=8192))
    assert len(parts.engine.loads) == 1


async def test_loading_in_another_form_reloads_and_in_the_same_form_does_not(parts: Parts) -> None:
    first = await parts.manager.load(LoadRequest(model="a", context_length=1024))
    await parts.manager.load(LoadRequest(model="a", context_length=1024))
    again = await parts.manager.load(LoadRequest(model="a", context_length=2048))

    assert (first.context_length, again.context_length) == (1024, 2048)
    assert len(parts.engine.loads) == 2


async def test_a_wish_that_was_rounded_is_not_loaded_again(parts: Parts) -> None:
    parts.planning.pad_context_to = 256
    state = await parts.manager.load(LoadRequest(model="a", context_length=1000))
    await parts.manager.load(LoadRequest(model="a", context_length=1000))
    await parts.manager.load(LoadRequest(model="a", context_length=1024))

    assert state.context_length == 1024
    assert len(parts.engine.loads) == 1


async def test_progress_of_a_load_is_reported(parts: Parts) -> None:
    steps: list[LoadProgress] = []
    await parts.manager.load(LoadRequest(model="a"), steps.append)

    assert steps[-1].fraction == 1.0


async def test_a_load_can_be_called_off(parts: Parts) -> None:
    parts.engine.load_gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        loading = group.create_task(_error_of(parts.manager.load(LoadRequest(model="a"))))
        await until(lambda: phase(parts, "a") is InstancePhase.LOADING)
        await parts.manager.unload("a")

    assert isinstance(loading.result(), Cancelled)
    assert phase(parts, "a") is None
    assert parts.manager.ledger.held_bytes("a") == 0


async def test_an_engine_that_is_not_here_is_named(parts: Parts) -> None:
    with pytest.raises(EngineUnavailable, match="ollama"):
        await parts.manager.load(LoadRequest(model="a", engine="ollama"))


# ---------------------------------------------------------------- the queue


async def test_more_requests_than_places_wait_their_turn(parts: Parts) -> None:
    gate = asyncio.Event()
    parts.engine.when("slow", Text("done"), Wait(gate))
    heard: list[Waiting] = []
    async with asyncio.TaskGroup() as group:
        for n in range(2):
            group.create_task(parts.ask(f"slow {n}"))
        await until(lambda: running(parts) == 2)
        call = parts.call("quick")
        call.on_waiting = heard.append
        waiter = group.create_task(_all(parts, call))
        await until(lambda: waiting(parts) == 1)
        assert heard == [Waiting(phase=RequestPhase.QUEUED, position=1)]
        assert not waiter.done()
        gate.set()
    assert waiter.result()


async def test_a_full_queue_refuses_and_a_waiter_that_leaves_makes_room(parts: Parts) -> None:
    gate = asyncio.Event()
    parts.engine.when("slow", Wait(gate), Text("done"))
    async with asyncio.TaskGroup() as group:
        await parts.manager.load(LoadRequest(model="a"))
        waiters = [group.create_task(parts.ask(f"slow {n}")) for n in range(6)]
        await until(lambda: waiting(parts) == 4)
        with pytest.raises(QueueFull):
            await parts.ask("one too many")
        waiters[-1].cancel()
        await until(waiters[-1].done)
        late = group.create_task(parts.ask("slow but in time"))
        await until(lambda: waiting(parts) == 4)
        gate.set()
    assert late.result()


async def test_an_engine_that_schedules_tiers_itself_gets_all_that_may_wait(parts: Parts) -> None:
    parts.engine.capabilities |= {Capability.PRIORITY}
    gate = asyncio.Event()
    parts.engine.when("slow", Wait(gate), Text("done"))
    await parts.manager.load(LoadRequest(model="a"))
    async with asyncio.TaskGroup() as group:
        for n in range(6):
            group.create_task(parts.ask(f"slow {n}"))
        await until(lambda: running(parts) == 6)
        gate.set()


# ---------------------------------------------------------------- crashes


async def test_a_crash_ends_the_request_and_the_next_one_gets_a_new_engine(parts: Parts) -> None:
    parts.engine.enqueue(Text("half"), Crash())
    with pytest.raises(EngineCrashed):
        await parts.ask("hi")
    await until(lambda: phase(parts, "a") is InstancePhase.CRASHED)
    assert [notice.level for notice in parts.notices.all()] == ["error"]

    assert await parts.ask("again")
    assert phase(parts, "a") is InstancePhase.READY
    assert parts.notices.all() == ()


async def test_who_waits_behind_a_crash_is_served_by_the_next_engine(parts: Parts) -> None:
    gate = asyncio.Event()
    parts.engine.when("slow", Wait(gate), Crash())
    async with asyncio.TaskGroup() as group:
        doomed = [group.create_task(_error_of(parts.ask(f"slow {n}"))) for n in range(2)]
        await until(lambda: running(parts) == 2)
        waiter = group.create_task(parts.ask("patient"))
        await until(lambda: waiting(parts) == 1)
        gate.set()
    assert all(isinstance(task.result(), EngineCrashed) for task in doomed)
    assert waiter.result()


async def test_a_stalled_engine_is_ended_and_replaced(parts: Parts) -> None:
    parts.engine.token_timeout_s = 0.01
    parts.engine.enqueue(Text("a start"), Hang())
    with pytest.raises(EngineStalled):
        await parts.ask("hi")

    await until(parts.engine.instances[0].exited.done)
    assert await parts.ask("again")
    assert len(parts.engine.instances) == 2


async def test_two_crashes_while_loading_quarantine_the_file_until_forced(parts: Parts) -> None:
    parts.engine.load_failures.extend([crash_on_load(), crash_on_load()])
    for _ in range(2):
        with pytest.raises(LoadFailed):
            await parts.manager.load(LoadRequest(model="a"))
    assert phase(parts, "a") is InstancePhase.QUARANTINED
    with pytest.raises(Quarantined):
        await parts.ask("hi")

    await parts.manager.load(LoadRequest(model="a", force=True))
    assert phase(parts, "a") is InstancePhase.READY


async def test_another_file_under_the_name_is_tried_afresh(parts: Parts) -> None:
    parts.engine.load_failures.extend([crash_on_load(), crash_on_load()])
    for _ in range(2):
        await _error_of(parts.manager.load(LoadRequest(model="a")))
    parts.source.replace_file("a", b"other weights")

    await parts.manager.load(LoadRequest(model="a", force=False))
    assert phase(parts, "a") is InstancePhase.READY


# ---------------------------------------------------------------- room


async def test_an_idle_model_makes_room_and_a_busy_one_is_waited_for(parts: Parts) -> None:
    parts.planning.total_bytes = 10
    parts.planning.sizes = {"a": 6, "b": 6}
    gate = asyncio.Event()
    parts.engine.when("slow", Text("x"), Wait(gate))
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(parts.ask("slow", model="a"))
        await until(lambda: running(parts) == 1)
        other = group.create_task(parts.ask("hi", model="b"))
        await until(lambda: phase(parts, "a") is InstancePhase.DRAINING)
        assert not other.done()
        gate.set()
    assert slow.result() and other.result()
    assert (phase(parts, "a"), phase(parts, "b")) == (None, InstancePhase.READY)


async def test_nothing_is_evicted_for_what_cannot_fit_anyway(parts: Parts) -> None:
    parts.planning.total_bytes = 10
    parts.planning.sizes = {"a": 6, "b": 11}
    await parts.ask("hi", model="a")

    with pytest.raises(DoesNotFit):
        await parts.ask("hi", model="b")
    assert phase(parts, "a") is InstancePhase.READY


async def test_a_pinned_model_is_never_evicted(parts: Parts) -> None:
    parts.planning.total_bytes = 10
    parts.planning.sizes = {"a": 6, "b": 6}
    await parts.manager.load(LoadRequest(model="a", pin=True))

    with pytest.raises(DoesNotFit):
        await parts.ask("hi", model="b")
    assert phase(parts, "a") is InstancePhase.READY


async def test_a_load_waits_for_another_that_took_the_memory_first(parts: Parts) -> None:
    parts.planning.total_bytes = 10
    parts.planning.sizes = {"a": 6, "b": 6}
    parts.engine.load_gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(parts.ask("hi", model="a"))
        await until(lambda: len(parts.engine.loads) == 1)
        second = group.create_task(parts.ask("hi", model="b"))
        await until(lambda: phase(parts, "b") is InstancePhase.LOADING)
        parts.engine.load_gate.set()
    assert first.result() and second.result()


async def test_pressure_unloads_the_idle_model_used_least_recently(parts: Parts) -> None:
    await parts.ask("hi", model="a")
    await parts.ask("hi", model="b")
    await parts.manager.load(LoadRequest(model="b", pin=True))
    assert await parts.manager.room.relieve() == "a"
    assert await parts.manager.room.relieve() is None
    assert parts.manager.loaded() == {"b"}


async def test_an_engine_that_keeps_crashing_is_left_alone(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Backoff, "wait_s", lambda self, now_s: 0.0)
    parts.engine.when("boom", Text("x"), Crash())
    for _ in range(5):
        await _error_of(parts.ask("boom"))
    crashes = len(parts.engine.loads)
    with pytest.raises(EngineCrashed, match="too often"):
        await parts.ask("hi")
    assert len(parts.engine.loads) == crashes

    await parts.manager.load(LoadRequest(model="a", force=True))
    assert await parts.ask("hi")


async def test_swapping_under_load_loses_and_misroutes_nothing(parts: Parts) -> None:
    parts.planning.total_bytes = 10
    parts.planning.sizes = {"a": 6, "b": 6}
    answers: list[str] = []

    def promised() -> int:
        return sum(sum(claim.planned.values()) for claim in parts.manager.ledger.claims.values())

    async def client(number: int) -> None:
        choices = random.Random(number)
        for _ in range(50):
            model = choices.choice("ab")
            async with parts.manager.lease(model) as lease:
                (mine,) = [i for i in parts.engine.instances if i is lease.instance]
                assert Path(mine.plan.model_path).stem == lease.model == model
                assert not mine.exited.done()
                assert promised() <= 10
                answers.append(model)
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(client(number))

    assert len(answers) == 200 and {*answers} == {"a", "b"}


async def test_no_more_models_than_allowed_stay_loaded(parts: Parts) -> None:
    parts.manager.room.max_loaded = 1
    await parts.ask("hi", model="a")
    await parts.ask("hi", model="b")

    assert parts.manager.loaded() == {"b"}


# ---------------------------------------------------------------- unloading


async def test_models_that_load_at_the_same_moment_are_counted_too(parts: Parts) -> None:
    parts.manager.room.max_loaded = 1
    parts.engine.load_gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        asks = [group.create_task(parts.ask("hi", model=model)) for model in "ab"]
        await until(lambda: len(parts.engine.loads) == 1 and phase(parts, "b") is InstancePhase.LOADING)
        parts.engine.load_gate.set()
    assert all(ask.result() for ask in asks)
    assert len(parts.manager.loaded()) == 1


async def test_an_idle_model_is_unloaded_after_its_keep_alive(parts: Parts) -> None:
    await parts.manager.load(LoadRequest(model="a", keep_alive_seconds=0.01))
    await until(lambda: phase(parts, "a") is None)
    assert parts.engine.instances[0].exited.done()


async def test_a_pinned_model_outlives_its_keep_alive(parts: Parts) -> None:
    await parts.manager.load(LoadRequest(model="a", keep_alive_seconds=0.0, pin=True))
    await asyncio.sleep(0.02)
    assert phase(parts, "a") is InstancePhase.READY


async def test_unloading_lets_what_runs_end_and_force_cuts_it_off(parts: Parts) -> None:
    gate = asyncio.Event()
    parts.engine.when("slow", Text("x"), Wait(gate), Text(" y"))
    async with asyncio.TaskGroup() as group:
        ask = group.create_task(parts.ask("slow"))
        await until(lambda: running(parts) == 1)
        unloading = group.create_task(parts.manager.unload("a"))
        await until(lambda: phase(parts, "a") is InstancePhase.DRAINING)
        assert not unloading.done()
        gate.set()
    assert ask.result()

    gate.clear()
    async with asyncio.TaskGroup() as group:
        cut = group.create_task(_error_of(parts.ask("slow")))
        await until(lambda: running(parts) == 1)
        await parts.manager.unload("a", force=True)
    assert isinstance(cut.result(), Cancelled)


async def test_unloading_what_is_not_loaded_is_an_error(parts: Parts) -> None:
    with pytest.raises(NotFound, match="'a' is not loaded"):
        await parts.manager.unload("a")
    with pytest.raises(ModelNotFound):
        await parts.manager.unload("c")


async def test_without_any_model_it_is_said_plainly(parts: Parts) -> None:
    parts.source.models.clear()
    with pytest.raises(ModelNotFound, match="No model is here yet"):
        parts.manager.resolve("")


async def test_a_loaded_model_is_not_removed_from_under_itself(parts: Parts) -> None:
    await parts.ask("hi")
    with pytest.raises(ModelInUse):
        parts.manager.refuse_removal("a")
    parts.manager.refuse_removal("b")


async def test_a_changed_file_is_loaded_anew_and_a_lost_one_is_an_error(parts: Parts) -> None:
    await parts.ask("hi")
    parts.source.replace_file("a", b"new weights")
    parts.manager.check_files_every_s = 0.0
    await parts.ask("hi")
    assert len(parts.engine.loads) == 2

    parts.source.remove_file("a")
    with pytest.raises(ModelChanged):
        await parts.ask("hi")


async def test_closing_takes_no_new_work_and_unloads(parts: Parts) -> None:
    await parts.ask("hi")
    await parts.manager.close()

    assert parts.manager.loaded() == frozenset()
    with pytest.raises(ShuttingDown):
        await parts.ask("hi")


async def test_only_models_that_answer_a_ping_are_healthy(parts: Parts) -> None:
    assert await parts.manager.healthy() == ()
    await parts.ask("hi")
    assert await parts.manager.healthy() == ("a",)


async def _all(parts: Parts, call: Call) -> list[Event]:
    return [event async for event in parts.pipeline.generate(call)]


async def _error_of(work: Awaitable[object]) -> LocalLLMError | None:
    try:
        await work
    except LocalLLMError as error:
        return error
    return None
