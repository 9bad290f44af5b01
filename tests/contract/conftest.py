"""Every test of this folder runs once per engine; an engine that cannot run here is skipped with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from localllm.engines.base import Engine, Instance
from tests.contract.subjects import (
    TEMPLATE,
    OllamaSubject,
    RealSubject,
    RemoteSubject,
    ScriptedSubject,
    Subject,
)
from tests.support.bare_server import bare_server

ENGINES = [
    pytest.param("scripted"),
    pytest.param("llama_server", marks=pytest.mark.real_model),
    pytest.param("llama_cpp", marks=[pytest.mark.real_model, pytest.mark.llama_cpp]),
    pytest.param("remote", marks=pytest.mark.real_model),
    pytest.param("ollama", marks=[pytest.mark.real_model, pytest.mark.ollama]),
]


@pytest.fixture(scope="module", params=ENGINES)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    if request.param == "scripted":
        yield ScriptedSubject()
        return
    model = request.getfixturevalue("demo_model")
    if request.param == "ollama":
        store = request.getfixturevalue("ollama_store")
        yield OllamaSubject(request.getfixturevalue("ollama_binary"), model, store)
    elif request.param == "remote":
        with bare_server(model, template=TEMPLATE) as server:
            yield RemoteSubject(server)
    else:
        yield RealSubject(request.param, model)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Instance]:
    """One loaded model for all tests of a module that leave it as they found it."""
    engine = subject.engine(tmp_path_factory.mktemp("logs"))
    instance = await engine.load(subject.plan(), lambda progress: None)
    yield instance
    await instance.unload()
    await engine.close()


@pytest_asyncio.fixture
async def engine(subject: Subject, tmp_path: Path) -> AsyncIterator[Engine]:
    if isinstance(subject, RemoteSubject):
        pytest.skip("a remote's process is not ours to watch; tests/unit/engines/remote has how it fails")
    engine = subject.engine(tmp_path / "logs", token_timeout_s=2)
    yield engine
    await engine.close()
