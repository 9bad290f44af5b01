"""Every test of this folder runs once per engine; an engine that cannot run here is skipped with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from localllm.engines.base import Engine, Instance
from tests.contract.subjects import RealSubject, ScriptedSubject, Subject

ENGINES = [
    pytest.param("scripted"),
    pytest.param("llama_server", marks=pytest.mark.real_model),
    pytest.param("llama_cpp", marks=[pytest.mark.real_model, pytest.mark.llama_cpp]),
]


@pytest.fixture(scope="module", params=ENGINES)
def subject(request: pytest.FixtureRequest) -> Subject:
    if request.param == "scripted":
        return ScriptedSubject()
    return RealSubject(request.param, request.getfixturevalue("demo_model"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    """One loaded model for all tests of a module that leave it as they found it."""
    engine = subject.engine(tmp_path_factory.mktemp("logs"))
    instance = await engine.load(subject.plan(), lambda progress: None)
    yield instance
    await instance.unload()
    await engine.close()


@pytest.fixture
def engine(subject: Subject, tmp_path: Path) -> Engine:
    return subject.engine(tmp_path / "logs", token_timeout_s=2)
