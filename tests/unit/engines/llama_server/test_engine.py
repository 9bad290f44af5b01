"""The engine with a program of the user's own; what every engine must do is in ``tests/contract``."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from localllm.core.errors import EngineUnavailable, LoadFailed
from localllm.core.generation import ChatPrompt, GenerationRequest, Message, Usage
from localllm.core.launch import LaunchPlan
from localllm.engines.llama_server.engine import LlamaServerEngine
from tests.support.llama_server_program import write_program


def plan(model: Path) -> LaunchPlan:
    return LaunchPlan(
        model_path=str(model),
        context_length=512,
        parallel=2,
        unified_kv=False,
        threads=1,
        chat_template="{% for m in messages %}{{ m.content }}{% endfor %}",
    )


@pytest.mark.real_model
async def test_a_program_of_the_users_own_answers_like_the_bundled_one(
    demo_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = write_program(tmp_path / "llama-server")
    engine = LlamaServerEngine(log_dir=tmp_path / "logs", binary=str(program))
    status = await engine.status()
    assert (status.available, status.reason) == (True, str(program))
    instance = await engine.load(plan(demo_model), lambda progress: None)
    try:
        assert (instance.info.context_length, instance.info.parallel) == (512, 2)
        prompt = ChatPrompt(messages=(Message(role="user", content="Hello"),))
        request = GenerationRequest(request_id="1", prompt=prompt, max_tokens=4)
        events = [event async for event in instance.generate(request)]
        assert isinstance(events[-1], Usage)
        assert instance.info.pid is not None
        command = " ".join(psutil.Process(instance.info.pid).cmdline())
        assert "LLAMA_API_KEY" not in command
    finally:
        await instance.unload()
    assert not psutil.pid_exists(instance.info.pid or os.getpid())


async def test_a_program_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    engine = LlamaServerEngine(log_dir=tmp_path, binary=str(tmp_path / "nowhere"))
    status = await engine.status()
    assert not status.available
    assert status.hint is not None
    with pytest.raises(EngineUnavailable):
        await engine.load(plan(tmp_path / "m.gguf"), lambda progress: None)


async def test_a_program_that_is_something_else_fails_with_what_it_said(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho 'error: invalid argument: --fit' >&2\nexit 1\n")
    program.chmod(0o755)
    engine = LlamaServerEngine(log_dir=tmp_path / "logs", binary=str(program))
    with pytest.raises(LoadFailed, match="invalid argument"):
        await engine.load(plan(model), lambda progress: None)


async def test_a_load_without_progress_is_ended(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    engine = LlamaServerEngine(log_dir=tmp_path / "logs", binary=str(program), load_timeout_s=0.5)
    with pytest.raises(LoadFailed, match="no progress"):
        await engine.load(plan(model), lambda progress: None)


async def test_a_draft_model_is_refused_rather_than_left_out(tmp_path: Path) -> None:
    engine = LlamaServerEngine(log_dir=tmp_path)
    with pytest.raises(LoadFailed, match="draft"):
        await engine.load(
            LaunchPlan(model_path="/m.gguf", context_length=8, draft_path="/d.gguf"), lambda progress: None
        )
