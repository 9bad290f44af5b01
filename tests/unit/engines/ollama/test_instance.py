"""What a daemon may do in the middle of an answer, and what it must mean to who asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from localllm.core.errors import (
    BadRequest,
    Cancelled,
    ContextLengthExceeded,
    EngineCrashed,
    EngineStalled,
    GenerationFailed,
    LocalLLMError,
    Unsupported,
)
from localllm.core.generation import (
    ChatPrompt,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Message,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Instance
from localllm.engines.ollama.engine import OllamaEngine
from tests.support.scripted_ollama import DONE, ScriptedOllama, said, scripted_ollama

PLAN = LaunchPlan(model_path="", context_length=256, engine_model="tiny", threads=2, gpu_layers=3)


@pytest.fixture
def ollama() -> Iterator[ScriptedOllama]:
    with scripted_ollama() as script:
        yield script


@pytest_asyncio.fixture
async def engine(ollama: ScriptedOllama, tmp_path: Path) -> AsyncIterator[OllamaEngine]:
    engine = OllamaEngine(log_dir=tmp_path, url=ollama.url, binary="no-such-ollama", token_timeout_s=0.3)
    yield engine
    await engine.close()


@pytest_asyncio.fixture
async def instance(engine: OllamaEngine) -> Instance:
    return await engine.load(PLAN, lambda progress: None)


def chat(**fields: Any) -> GenerationRequest:
    prompt = ChatPrompt(messages=(Message(role="user", content="Hi"),))
    return GenerationRequest(request_id="r", prompt=fields.pop("prompt", prompt), **fields)


async def events_of(instance: Instance, asked: GenerationRequest | None = None) -> list[Event]:
    return [event async for event in instance.generate(asked or chat())]


async def error_of(instance: Instance, *, after: list[Event] | None = None) -> LocalLLMError:
    seen: list[Event] = after if after is not None else []
    with pytest.raises(LocalLLMError) as caught:
        async for event in instance.generate(chat()):
            seen.append(event)
    return caught.value


async def test_the_context_is_named_and_nothing_is_cut(ollama: ScriptedOllama, instance: Instance) -> None:
    await events_of(instance)
    (body,) = ollama.bodies("/api/chat")
    assert body["truncate"] is False and body["shift"] is False
    assert body["options"] == {"num_ctx": 256, "num_thread": 2, "num_gpu": 3}
    assert body["keep_alive"] == -1
    assert ollama.bodies("/api/generate")[0]["options"] == body["options"]  # else it would load anew


async def test_an_error_inside_an_answer_that_was_200(ollama: ScriptedOllama, instance: Instance) -> None:
    ollama.lines = [said("Hel"), {"error": "an error was encountered while running the model"}]
    seen: list[Event] = []
    error = await error_of(instance, after=seen)
    assert isinstance(error, GenerationFailed) and "an error was encountered" in error.message
    assert [event.text for event in seen if isinstance(event, TextDelta)] == ["Hel"]


async def test_an_answer_that_ends_without_saying_so_is_not_taken_for_whole(
    ollama: ScriptedOllama, instance: Instance
) -> None:
    ollama.lines = [said("Hel")]
    assert "without saying" in (await error_of(instance)).message


async def test_a_daemon_that_breaks_off_but_lives_fails_one_answer(
    ollama: ScriptedOllama, instance: Instance
) -> None:
    ollama.breaks, ollama.lines = True, [said("Hel")]
    assert type(await error_of(instance)) is GenerationFailed
    assert not instance.exited.done()


async def test_a_daemon_that_is_gone_is_a_crash(ollama: ScriptedOllama, instance: Instance) -> None:
    ollama.breaks, ollama.lines, ollama.version = True, [said("Hel")], None
    error = await error_of(instance)
    assert isinstance(error, EngineCrashed)
    assert not (await instance.exited).expected
    assert isinstance(await error_of(instance), EngineCrashed)
    with pytest.raises(EngineCrashed):
        await instance.ping()


async def test_silence_is_a_stall(ollama: ScriptedOllama, instance: Instance) -> None:
    ollama.hangs, ollama.lines = True, [said("Hel")]
    assert isinstance(await error_of(instance), EngineStalled)


async def test_an_unload_ends_an_answer_that_waits(ollama: ScriptedOllama, instance: Instance) -> None:
    ollama.hangs, ollama.lines = True, [said("Hel")]
    answer = instance.generate(chat())
    async for event in answer:
        if isinstance(event, TextDelta):
            break
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(_next_error(answer))
        await asyncio.sleep(0)
        await instance.unload()
    assert isinstance(waiting.result(), Cancelled)
    assert ollama.bodies("/api/generate")[-1]["keep_alive"] == 0


async def _next_error(answer: AsyncIterator[Event]) -> LocalLLMError:
    with pytest.raises(LocalLLMError) as caught:
        await anext(answer)
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "the input length exceeds the context length",
        "input exceeds maximum context length 256",
        '{"code":400,"type":"exceed_context_size_error"}',
    ],
)
async def test_a_prompt_that_is_too_long_is_told_by_the_words_of_each_version(
    ollama: ScriptedOllama, instance: Instance, text: str
) -> None:
    ollama.status, ollama.error = 400, text
    error = await error_of(instance)
    assert isinstance(error, ContextLengthExceeded)
    assert (error.prompt_tokens, error.context_length) == (None, 256)


@pytest.mark.parametrize(("status", "kind"), [(400, BadRequest), (404, BadRequest), (500, GenerationFailed)])
async def test_other_refusals(
    ollama: ScriptedOllama, instance: Instance, status: int, kind: type[LocalLLMError]
) -> None:
    ollama.status, ollama.error = status, "no"
    assert type(await error_of(instance)) is kind


async def test_counts_that_go_backwards_are_not_believed(ollama: ScriptedOllama, instance: Instance) -> None:
    ollama.lines = [said("x"), DONE | {"eval_count": -3, "prompt_eval_count": -1, "eval_duration": -(2**63)}]
    usage = (await events_of(instance))[-1]
    assert isinstance(usage, Usage)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.decode_ms) == (0, 0, None)


async def test_an_old_version_that_counts_nothing_still_answers(
    ollama: ScriptedOllama, instance: Instance
) -> None:
    ollama.lines = [{"message": {"content": "Hello"}}, {"done": True}]
    events = await events_of(instance)
    assert [e.reason for e in events if isinstance(e, Finished)] == [FinishReason.STOP]


async def test_a_line_that_is_not_json_ends_the_answer(ollama: ScriptedOllama, instance: Instance) -> None:
    ollama.lines = [said("Hel"), b"<html>"]
    assert "not its API's" in (await error_of(instance)).message


async def test_thoughts_are_apart_from_the_answer(ollama: ScriptedOllama, engine: OllamaEngine) -> None:
    ollama.models["tiny:latest"] = ["completion", "thinking"]
    instance = await engine.load(PLAN, lambda progress: None)
    ollama.lines = [said("", thinking="hm"), said("Yes"), dict(DONE)]
    events = await events_of(instance)
    assert [e.text for e in events if isinstance(e, ReasoningDelta)] == ["hm"]
    assert ollama.bodies("/api/chat")[0]["think"] is True


async def test_embeddings_are_brought_to_unit_length(ollama: ScriptedOllama, engine: OllamaEngine) -> None:
    ollama.models["tiny:latest"] = ["embedding"]
    instance = await engine.load(PLAN, lambda progress: None)
    assert (await instance.embed(["x"])).vectors == ((0.6, 0.8),)
    assert ollama.bodies("/api/embed")[0]["truncate"] is False
    with pytest.raises(Unsupported):
        await instance.embed([[1, 2]])
    with pytest.raises(Unsupported):
        await events_of(instance)


async def test_what_it_holds_is_what_it_says(instance: Instance) -> None:
    assert (await instance.stats()).resident_bytes == 1000
