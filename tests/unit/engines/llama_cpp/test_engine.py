"""The engine and its worker together, on tiny models: what goes wrong stays in the worker and has a name."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import psutil
import pytest
import pytest_asyncio

from localllm.core.errors import (
    BadGrammar,
    BadRequest,
    Cancelled,
    ContextLengthExceeded,
    EngineCrashed,
    GenerationFailed,
    LoadFailed,
    LocalLLMError,
    ModelChanged,
    OutOfMemory,
    UnknownArchitecture,
    Unsupported,
)
from localllm.core.generation import (
    ChatPrompt,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Grammar,
    JsonObject,
    Message,
    Prompt,
    ReasoningDelta,
    Sampling,
    TextDelta,
    TextPrompt,
    TokenPrompt,
    Tool,
    Usage,
)
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Capability, Instance
from localllm.engines.llama_cpp.engine import LlamaCppEngine
from tests.support.tiny_gguf import CHATML_TEMPLATE, write_tiny_gguf

pytestmark = [pytest.mark.llama_cpp, pytest.mark.asyncio(loop_scope="module")]

THINKING_TEMPLATE = CHATML_TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")


def plan(path: Path, **fields: Any) -> LaunchPlan:
    return LaunchPlan(
        **{"model_path": str(path), "context_length": 256, "parallel": 3, "threads": 1, **fields}
    )


def engine(folder: Path) -> LlamaCppEngine:
    return LlamaCppEngine(log_dir=folder / "log")


async def load(folder: Path, path: Path, **fields: Any) -> Instance:
    return await engine(folder).load(plan(path, **fields), lambda progress: None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    folder = tmp_path_factory.mktemp("engine")
    path = write_tiny_gguf(folder / "tiny.gguf", "llama", chat_template=CHATML_TEMPLATE)
    loaded = await load(folder, path, embedding=True)
    yield loaded
    await loaded.unload()


def ask(prompt: str | Prompt = "hello", **fields: Any) -> GenerationRequest:
    return GenerationRequest(
        **{
            "request_id": "test",
            "prompt": TextPrompt(prompt) if isinstance(prompt, str) else prompt,
            "max_tokens": 12,
            "sampling": Sampling(temperature=0),
            **fields,
        }
    )


async def events_of(instance: Instance, request: GenerationRequest) -> list[Event]:
    return [event async for event in instance.generate(request)]


def text_of(events: list[Event], choice: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta) and e.choice == choice)


async def test_text_that_is_no_text_is_refused(instance: Instance) -> None:
    with pytest.raises(BadRequest):
        await events_of(instance, ask("half a pair: \ud800"))
    with pytest.raises(BadRequest):
        await events_of(instance, ask(max_tokens=1 << 70))


@pytest.mark.parametrize(
    ("request_", "error", "param"),
    [
        (ask("word " * 400), ContextLengthExceeded, "prompt"),
        (ask(prompt=TokenPrompt((1, 99_999))), BadRequest, "prompt"),
        (ask(prompt=TokenPrompt((-1,))), BadRequest, "prompt"),
        (ask(prompt=TokenPrompt(())), BadRequest, "prompt"),
        (ask(max_tokens=0), BadRequest, "max_tokens"),
        (ask(n=0), BadRequest, "n"),
        (ask(sampling=Sampling(logit_bias={10**8: 1.0})), BadRequest, "logit_bias"),
        (ask(constraint=Grammar("root ::= undefined")), BadGrammar, "grammar"),
        (ask(constraint=Grammar("root ::= [")), BadGrammar, "grammar"),
        (ask(constraint=Grammar('root ::= root "x" | "y"')), BadGrammar, "grammar"),
        (ask(prediction="x", n=2), Unsupported, "prediction"),
        (ask(prediction="x", logprobs=1), Unsupported, "prediction"),
    ],
)
async def test_what_a_request_has_wrong_is_said_before_any_event(
    instance: Instance, request_: GenerationRequest, error: type[LocalLLMError], param: str
) -> None:
    with pytest.raises(error) as caught:
        await events_of(instance, request_)
    assert caught.value.param == param
    assert text_of(await events_of(instance, ask()))


async def test_tools_and_a_format_together_are_refused(instance: Instance) -> None:
    prompt = ChatPrompt(messages=(Message(role="user", content="hi"),), tools=(Tool("look"),))
    with pytest.raises(Unsupported):
        await events_of(instance, ask(prompt=prompt, constraint=JsonObject()))


async def test_a_template_that_loops_fails_and_nobody_else_notices(tmp_path: Path) -> None:
    looping = CHATML_TEMPLATE + (
        "{% if messages[0].content == 'loop' %}"
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
    )
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", chat_template=looping)
    instance = await load(tmp_path, path)
    prompt = ChatPrompt(messages=(Message(role="user", content="loop"),))
    slow = asyncio.get_running_loop().create_task(events_of(instance, ask(prompt=prompt)))
    await instance.ping()
    with pytest.raises(BadRequest):
        await slow
    assert text_of(await events_of(instance, ask()))
    await instance.unload()


async def test_a_request_cancelled_while_it_is_prepared_never_runs(tmp_path: Path) -> None:
    looping = (
        CHATML_TEMPLATE
        + "{% if messages[0].content == 'loop' %}{% for a in range(99999) %}{% for b in range(99) %}{% endfor %}{% endfor %}{% endif %}"
    )
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", chat_template=looping)
    instance = await load(tmp_path, path)
    prompt = ChatPrompt(messages=(Message(role="user", content="loop"),))
    task = asyncio.get_running_loop().create_task(events_of(instance, ask(prompt=prompt)))
    await asyncio.sleep(0.05)
    task.cancel()
    assert text_of(await events_of(instance, ask()))
    stats = await instance.stats()
    assert (stats.running, stats.completion_tokens_total) == (0, 12)
    await instance.unload()


async def test_a_forced_answer_follows_its_grammar(instance: Instance) -> None:
    events = await events_of(instance, ask(constraint=Grammar('root ::= "yes" | "no"'), max_tokens=40))
    assert text_of(events) in ("yes", "no")
    assert Finished(FinishReason.STOP) in events


async def test_a_thought_is_free_and_only_the_answer_bound(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", chat_template=THINKING_TEMPLATE)
    instance = await load(tmp_path, path)
    prompt = ChatPrompt(messages=(Message(role="user", content="hi"),))
    events = await events_of(instance, ask(prompt=prompt, constraint=Grammar('root ::= "{}"')))
    # random weights never end the thought, so all there is to see is that the grammar left it alone
    assert any(isinstance(event, ReasoningDelta) for event in events)
    assert text_of(events) == ""
    await instance.unload()


async def test_embeddings_are_unit_vectors_and_do_not_depend_on_the_batch(instance: Instance) -> None:
    texts = ["one", "two words", "three words here"]
    together = await instance.embed(texts)
    single = [(await instance.embed([text])).vectors[0] for text in texts]
    assert np.allclose(together.vectors, single, atol=1e-4)
    assert np.allclose(np.linalg.norm(np.array(together.vectors), axis=1), 1, atol=1e-5)
    assert together.prompt_tokens == sum([len(await instance.tokenize(text)) for text in texts])
    assert (await instance.embed([await instance.tokenize("one")])).vectors[0] == pytest.approx(
        single[0], abs=1e-5
    )


@pytest.mark.parametrize("bad", ["", [], [10**6], [-1]])
async def test_an_input_that_cannot_be_embedded_is_refused(instance: Instance, bad: Any) -> None:
    with pytest.raises(BadRequest):
        await instance.embed([bad])


async def test_too_long_an_input_is_refused_not_cut(instance: Instance) -> None:
    with pytest.raises(ContextLengthExceeded):
        await instance.embed(["word " * 400])


async def test_without_embedding_in_the_plan_it_is_refused(tmp_path: Path) -> None:
    instance = await load(tmp_path, write_tiny_gguf(tmp_path / "tiny.gguf", "llama"))
    assert Capability.EMBEDDING not in instance.info.capabilities
    with pytest.raises(Unsupported):
        await instance.embed(["text"])
    await instance.unload()


async def test_numbers_that_are_none_fail_the_request_not_the_worker(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    reader = gguf.GGUFReader(path, "r+")
    output = next(tensor for tensor in reader.tensors if tensor.name == "output_norm.weight")
    output.data[:] = np.nan
    reader.data.flush()
    del reader, output
    instance = await load(tmp_path, path)
    for _ in range(2):
        with pytest.raises(GenerationFailed):
            await events_of(instance, ask())
    await instance.ping()
    assert (await instance.stats()).running == 0
    await instance.unload()


async def test_a_truncated_file_is_not_loaded(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(LoadFailed) as caught:
        await load(tmp_path, path)
    assert "tensor" in str(caught.value.details["stderr_tail"])


async def test_another_architecture_is_named_as_the_cause(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    path.write_bytes(path.read_bytes().replace(b"llama", b"lxxma"))
    with pytest.raises(UnknownArchitecture):
        await load(tmp_path, path)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"<!DOCTYPE html>" * 100])
async def test_what_is_no_model_is_not_loaded(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(content)
    with pytest.raises(LoadFailed):
        await load(tmp_path, path)


async def test_a_missing_file_is_not_loaded(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed):
        await load(tmp_path, tmp_path / "none.gguf")


async def test_a_context_nobody_has_memory_for_is_out_of_memory(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama", n_layer=64)
    with pytest.raises(OutOfMemory):  # 32 KiB a token, so 512 GiB
        await load(tmp_path, path, context_length=1 << 22, parallel=4, kv_type_k="f32", kv_type_v="f32")


async def test_experts_that_stay_on_the_cpu_answer_the_same(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "qwen3moe")
    answers = []
    for layers in (0, 3):
        instance = await load(tmp_path, path, cpu_moe_layers=layers)
        answers.append(text_of(await events_of(instance, ask())))
        await instance.unload()
    assert answers[0] == answers[1] != ""


async def test_sequences_with_a_cache_each_answer_alike_without_sharing(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    instance = await load(tmp_path, path, unified_kv=False)
    asked = ask("the same words again and again", max_tokens=8)
    answers = [
        text_of(events) for events in await asyncio.gather(*(events_of(instance, asked) for _ in range(5)))
    ]
    assert len(set(answers)) == 1
    again = await events_of(instance, asked)
    usage = again[-1]
    assert isinstance(usage, Usage)
    assert (usage.cached_tokens or 0) > 0
    await instance.unload()


async def test_images_and_drafts_are_refused_at_load(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    with pytest.raises(Unsupported):
        await load(tmp_path, path, mmproj_path=str(path))


async def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    instance = await load(tmp_path, path)
    path.unlink()
    write_tiny_gguf(path, "llama", seed=2)
    with pytest.raises(ModelChanged):
        await events_of(instance, ask())
    await instance.unload()


async def test_a_killed_worker_ends_every_request_with_the_cause(tmp_path: Path) -> None:
    instance = await load(tmp_path, write_tiny_gguf(tmp_path / "tiny.gguf", "llama"))
    running = [
        asyncio.get_running_loop().create_task(events_of(instance, ask(max_tokens=200))) for _ in range(5)
    ]
    await instance.ping()
    assert instance.info.pid is not None
    os.kill(instance.info.pid, signal.SIGKILL)
    for outcome in await asyncio.gather(*running, return_exceptions=True):
        assert isinstance(outcome, EngineCrashed | list)
    ended = await instance.exited
    assert ended.exit_code == -signal.SIGKILL
    assert "killed" in ended.cause
    with pytest.raises(EngineCrashed):
        await events_of(instance, ask())


async def test_unloading_cancels_what_runs_and_leaves_no_process(tmp_path: Path) -> None:
    instance = await load(tmp_path, write_tiny_gguf(tmp_path / "tiny.gguf", "llama"), context_length=2048)
    running = asyncio.get_running_loop().create_task(events_of(instance, ask(max_tokens=1900)))
    await instance.ping()
    await instance.unload()
    await instance.unload()
    with pytest.raises(Cancelled):
        await running
    assert instance.info.pid is not None
    assert not psutil.pid_exists(instance.info.pid)
    assert (await instance.exited).expected


async def test_500_random_requests_leave_the_worker_as_it_was(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "gemma3", chat_template=CHATML_TEMPLATE)
    instance = await load(tmp_path, path, parallel=4)
    source = random.Random(1)
    rss: list[int] = []

    async def one(index: int) -> None:
        stem = f"stem {index % 7} " * (1 + index % 11)
        leave_after = source.choice([None, None, 0, 3])
        request = source.choice(
            [
                ask(stem + str(index), stop=("e", "<")),
                ask(stem, n=2, sampling=Sampling(seed=index)),
                ask(stem, logprobs=2),
                ask(stem, prediction=stem),
                ask(stem, constraint=JsonObject(), sampling=Sampling()),
                ask(stem * 40),
                ask(prompt=ChatPrompt(messages=(Message(role="user", content=stem),))),
                ask(stem, cache_prompt=False, max_tokens=None),
                ask(
                    stem,
                    sampling=Sampling(
                        temperature=1, repeat_penalty=1.2, dry_multiplier=0.8, xtc_probability=0.5
                    ),
                ),
            ]
        )
        events = instance.generate(request)
        try:
            seen = 0
            async for event in events:
                seen += isinstance(event, TextDelta)
                if leave_after is not None and seen >= leave_after:
                    break
                if isinstance(event, Usage):
                    assert event.completion_tokens > 0
        except ContextLengthExceeded:
            assert len(stem) * 40 > 200
        finally:
            await events.aclose()  # type: ignore[attr-defined]

    for start in range(0, 500, 20):
        await asyncio.gather(*(one(index) for index in range(start, start + 20)))
        rss.append((await instance.stats()).resident_bytes or 0)
    async with asyncio.timeout(5):
        while (await instance.stats()).running:  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.01)
    stats = await instance.stats()
    assert stats.waiting == 0
    assert (stats.kv_used_tokens or 0) <= (stats.kv_total_tokens or 0)
    assert rss[-1] - rss[len(rss) // 2] < 8 << 20
    assert text_of(await events_of(instance, ask())) != ""
    await instance.unload()
