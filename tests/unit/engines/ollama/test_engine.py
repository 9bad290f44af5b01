"""Finding a daemon, making models in it, and what it really gave."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from localllm.core.errors import EngineUnavailable, LoadFailed, ModelNotFound
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Capability, LoadProgress
from localllm.engines.ollama.engine import OllamaEngine
from tests.support.scripted_ollama import ScriptedOllama, scripted_ollama

THERE = LaunchPlan(model_path="", context_length=256, engine_model="tiny")


@pytest.fixture
def ollama() -> Iterator[ScriptedOllama]:
    with scripted_ollama() as script:
        yield script


@pytest_asyncio.fixture
async def engine(ollama: ScriptedOllama, tmp_path: Path) -> AsyncIterator[OllamaEngine]:
    engine = OllamaEngine(log_dir=tmp_path, url=ollama.url, binary="no-such-ollama")
    yield engine
    await engine.close()


def nothing(progress: LoadProgress) -> None:
    return


async def test_a_daemon_that_runs_is_found_with_its_version(
    engine: OllamaEngine, ollama: ScriptedOllama
) -> None:
    status = await engine.status()
    assert (status.available, status.version) == (True, "0.24.0")
    assert ollama.url in (status.reason or "")


@pytest.mark.parametrize("html", [True, False])
async def test_where_there_is_none_it_is_said_how_to_get_it(
    engine: OllamaEngine, ollama: ScriptedOllama, html: bool
) -> None:
    ollama.html, ollama.version = html, None
    status = await engine.status()
    assert not status.available and status.hint is not None
    with pytest.raises(EngineUnavailable) as caught:
        await engine.load(THERE, nothing)
    assert caught.value.hint == status.hint


async def test_a_program_that_does_not_come_up_is_named_with_its_last_words(tmp_path: Path) -> None:
    program = tmp_path / "ollama"
    program.write_text("#!/bin/sh\necho the disk is on fire >&2\nexit 3\n")
    program.chmod(0o755)
    engine = OllamaEngine(log_dir=tmp_path / "log", url="http://127.0.0.1:9", binary=str(program))
    assert (await engine.status()).available
    with pytest.raises(EngineUnavailable) as caught:
        await engine.load(THERE, nothing)
    assert "the disk is on fire" in (caught.value.hint or "")
    await engine.close()


async def test_a_file_of_ours_is_made_into_a_model_there_once(
    engine: OllamaEngine, ollama: ScriptedOllama, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + b"x" * 100)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    plan = LaunchPlan(model_path=str(path), context_length=256)
    seen: list[LoadProgress] = []
    await engine.load(plan, seen.append)
    (made,) = ollama.bodies("/api/create")
    assert made["files"] == {"model.gguf": f"sha256:{digest}"}
    assert [p.fraction for p in seen if p.stage == "copying into Ollama"] == [0.0, 1.0]
    await engine.load(plan, nothing)
    assert len(ollama.bodies("/api/create")) == 1


async def test_a_model_that_is_not_there_is_not_found(engine: OllamaEngine) -> None:
    with pytest.raises(ModelNotFound):
        await engine.load(LaunchPlan(model_path="", context_length=256, engine_model="other"), nothing)


async def test_a_context_that_was_not_given_is_said_and_believed(
    engine: OllamaEngine, ollama: ScriptedOllama
) -> None:
    ollama.context_length = 128
    info = (await engine.load(THERE, nothing)).info
    assert info.context_length == 128
    assert "gave 128 tokens of context, not the 256" in " ".join(info.warnings)


async def test_an_old_version_that_tells_neither_context_nor_capabilities(
    engine: OllamaEngine, ollama: ScriptedOllama
) -> None:
    ollama.context_length, ollama.models["tiny:latest"] = None, None
    info = (await engine.load(THERE, nothing)).info
    assert info.context_length == 256
    assert Capability.CHAT in info.capabilities


async def test_a_model_that_is_let_go_at_once_did_not_load(
    engine: OllamaEngine, ollama: ScriptedOllama
) -> None:
    ollama.loads = False
    with pytest.raises(LoadFailed, match="let it go"):
        await engine.load(THERE, nothing)
