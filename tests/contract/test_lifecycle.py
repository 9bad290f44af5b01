"""Loading, dying and leaving: what a process that may die at any time must mean to those who use it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from localllm.core.errors import (
    Cancelled,
    ContextLengthExceeded,
    EngineCrashed,
    EngineStalled,
    LoadFailed,
    LocalLLMError,
    ModelChanged,
    Unsupported,
)
from localllm.core.generation import Event, TextDelta
from localllm.engines.base import Capability, Engine, LoadProgress
from tests.contract.subjects import Subject, can, eventually, pid_of, request, somebody_waits

NOTHING = lambda progress: None  # noqa: E731


async def speaking(events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """The stream, read as far as its first text."""
    async for event in events:
        if isinstance(event, TextDelta):
            return events
    raise AssertionError("the answer had no text")


async def error_of(events: AsyncIterator[Event]) -> LocalLLMError:
    """Read on to the end, which must be an error."""
    with pytest.raises(LocalLLMError) as caught:
        async for _ in events:
            pass
    return caught.value


async def test_the_status_is_quick_and_says_where_the_engine_is(engine: Engine) -> None:
    async with asyncio.timeout(3):
        status = await engine.status()
    assert status.available
    assert status.name == engine.name


async def test_a_load_reports_progress_and_what_it_loaded(subject: Subject, engine: Engine) -> None:
    seen: list[LoadProgress] = []
    plan = subject.plan(context_length=512, parallel=subject.places)
    instance = await engine.load(plan, seen.append)
    try:
        assert (instance.info.context_length, instance.info.parallel) == (512, subject.places)
        fractions = [progress.fraction for progress in seen if progress.fraction is not None]
        assert fractions == sorted(fractions)
        assert all(0 <= fraction <= 1 for fraction in fractions)
        if subject.process_per_model:
            assert {"weights", "kv", "compute"} <= {buffer.kind for buffer in instance.info.buffers}
            assert psutil.pid_exists(pid_of(instance))
    finally:
        await instance.unload()


async def test_unloading_ends_open_answers_and_can_be_repeated(subject: Subject, engine: Engine) -> None:
    instance = await engine.load(subject.plan(), NOTHING)
    running = await speaking(instance.generate(subject.endless(instance)))
    async with asyncio.TaskGroup() as group:
        error = group.create_task(error_of(running))
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await instance.unload()
    assert isinstance(error.result(), Cancelled)
    await instance.unload()
    assert (await instance.exited).expected
    assert isinstance(await error_of(instance.generate(request("Hello"))), Cancelled)
    if subject.process_per_model:
        assert not psutil.pid_exists(pid_of(instance))


async def test_a_killed_engine_fails_every_open_answer_with_the_cause(
    subject: Subject, engine: Engine
) -> None:
    instance = await engine.load(subject.plan(parallel=2), NOTHING)
    answers = [await speaking(instance.generate(subject.endless(instance))) for _ in range(2)]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(error_of(instance.generate(request("Hello"))))
        await somebody_waits(instance)
        subject.crash(instance)
        errors = [group.create_task(error_of(answer)) for answer in answers]
    for task in (*errors, waiting):
        error = task.result()
        assert isinstance(error, EngineCrashed)
        assert {"cause", "exit_code", "stderr_tail"} <= error.details.keys()
        assert error.details["exit_code"] == -9
    end = await asyncio.wait_for(instance.exited, 5)
    assert (end.expected, end.exit_code) == (False, -9)
    assert isinstance(await error_of(instance.generate(request("Hello"))), EngineCrashed)
    with pytest.raises(EngineCrashed):
        await instance.ping()
    await instance.unload()


async def test_silence_in_the_middle_of_an_answer_is_a_stall(subject: Subject, engine: Engine) -> None:
    instance = await engine.load(subject.plan(parallel=1), NOTHING)
    if not subject.real:
        subject.freeze(instance)
    answer = await speaking(instance.generate(subject.endless(instance)))
    if subject.real:
        subject.freeze(instance)
    async with asyncio.timeout(20):
        assert isinstance(await error_of(answer), EngineStalled)
    await instance.unload()


async def test_a_cancelled_load_leaves_no_process(subject: Subject, engine: Engine) -> None:
    if not subject.real:
        pytest.skip("the scripted engine has no process")
    before = set(psutil.Process().children(recursive=True))

    async def started() -> object:
        return set(psutil.Process().children(recursive=True)) - before

    async def gone() -> object:
        return not await started()

    async def load() -> None:
        await engine.load(subject.plan(), NOTHING)

    async with asyncio.TaskGroup() as group:
        loading = group.create_task(load())
        await eventually(started)
        loading.cancel()
    assert loading.cancelled()
    if not subject.process_per_model:
        await engine.close()
    await eventually(gone, within_s=5)


async def test_a_file_that_is_no_model_fails_with_the_cause(
    subject: Subject, engine: Engine, tmp_path: Path
) -> None:
    if not subject.real:
        pytest.skip("the scripted engine reads no file")
    for content in (None, b"", b"GGUF" + b"\xff" * 4096, b"<html>not a model</html>"):
        path = tmp_path / "broken.gguf"
        if content is not None:
            path.write_bytes(content)
        plan = subject.plan()
        broken = type(plan)(model_path=str(path), context_length=256, threads=1)
        with pytest.raises(LoadFailed) as caught:
            await engine.load(broken, NOTHING)
        assert caught.value.message.endswith(".")


async def test_a_model_file_that_was_replaced_is_noticed(
    subject: Subject, engine: Engine, tmp_path: Path
) -> None:
    if not subject.real:
        pytest.skip("the scripted engine reads no file")
    link = tmp_path / "model.gguf"
    link.symlink_to(subject.model_path())
    plan = subject.plan()
    instance = await engine.load(
        type(plan)(model_path=str(link), context_length=256, threads=1, chat_template=plan.chat_template),
        NOTHING,
    )
    link.unlink()
    link.write_bytes(b"another model")
    assert isinstance(await error_of(instance.generate(request("Hello"))), ModelChanged)
    await instance.unload()


async def test_embeddings_are_unit_vectors_in_the_order_asked(subject: Subject, engine: Engine) -> None:
    instance = await engine.load(subject.plan(parallel=1, embedding=True), NOTHING)
    try:
        if not can(instance, Capability.EMBEDDING):
            with pytest.raises(Unsupported):
                await instance.embed(["Hello"])
            return
        tokens = await instance.tokenize("a red car", add_special=True)
        result = await instance.embed(["a red car", "the stock market fell", tokens])
        red, market, same = result.vectors
        assert all(math.isclose(math.dist(v, [0.0] * len(v)), 1.0, rel_tol=1e-3) for v in result.vectors)
        assert math.dist(red, same) < 0.02 < math.dist(red, market)
        assert result.prompt_tokens > len(tokens) * 2
        with pytest.raises(ContextLengthExceeded) as caught:
            await instance.embed(["word " * 3000])
        assert caught.value.param == "input"
        assert len((await instance.embed(["still here"])).vectors) == 1
    finally:
        await instance.unload()
