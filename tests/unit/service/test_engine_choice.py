from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from localllm.core.errors import EngineUnavailable
from localllm.engines.base import Engine
from localllm.service.engine_choice import choose_engine
from tests.support.scripted_engine import ScriptedEngine
from tests.support.stored_models import stored_model


def engines(**available: bool) -> dict[str, Engine]:
    return {name: ScriptedEngine(available=there) for name, there in available.items()}


async def test_the_preferred_one_that_is_there_with_the_reason() -> None:
    both = engines(llama_cpp=True, llama_server=True)
    engine, reason = await choose_engine(both, asked=None, configured="auto")
    assert engine is both["llama_server"] and reason == "the first choice"

    one = engines(llama_cpp=True, llama_server=False)
    engine, reason = await choose_engine(one, asked=None, configured="auto")
    assert engine is one["llama_cpp"] and reason.startswith("not llama_server: The test")


async def test_the_one_asked_for_beats_the_configured_one() -> None:
    both = engines(llama_cpp=True, llama_server=True)
    engine, reason = await choose_engine(both, asked="llama_cpp", configured="llama_server")
    assert engine is both["llama_cpp"] and reason == "asked for"
    engine, _ = await choose_engine(both, asked=None, configured="llama_cpp")
    assert engine is both["llama_cpp"]


async def test_what_cannot_be_had_is_said() -> None:
    with pytest.raises(EngineUnavailable, match="switched it off"):
        await choose_engine(engines(llama_cpp=False), asked="llama_cpp", configured="auto")
    with pytest.raises(EngineUnavailable, match="no engine 'vllm'"):
        await choose_engine(engines(llama_cpp=True), asked="vllm", configured="auto")
    with pytest.raises(EngineUnavailable, match="No engine"):
        await choose_engine({}, asked=None, configured="auto")


async def test_a_model_that_only_one_engine_can_run(tmp_path: Path) -> None:
    there = engines(llama_server=True, ollama=True) | {"remote:far": ScriptedEngine()}
    theirs = replace(stored_model("m", tmp_path / "m"), owner="ollama", problem="Only Ollama knows it.")
    engine, reason = await choose_engine(there, asked=None, configured="llama_server", model=theirs)
    assert engine is there["ollama"] and "Only Ollama knows it" in reason
    far = replace(theirs, owner="remote:far")
    engine, _ = await choose_engine(there, asked=None, configured="auto", model=far)
    assert engine is there["remote:far"]
    with pytest.raises(EngineUnavailable, match="cannot run on llama_cpp"):
        await choose_engine(there, asked="llama_cpp", configured="auto", model=far)


async def test_a_remote_is_never_chosen_for_a_file_of_ours() -> None:
    with pytest.raises(EngineUnavailable, match="No engine"):
        await choose_engine({"remote:far": ScriptedEngine()}, asked=None, configured="auto")
