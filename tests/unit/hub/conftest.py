"""A hub on loopback for every test of sources, plans and pulls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from localllm.hub.download.wire import new_client
from localllm.hub.sources.access import read_access
from localllm.hub.sources.base import Access
from tests.support.hub_files import loopback_hub
from tests.support.loopback_hub import LoopbackHub


@pytest.fixture(scope="session")
def served_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture
def hub(served_folder: Path) -> Iterator[LoopbackHub]:
    with loopback_hub(served_folder).serving() as hub:
        yield hub


@pytest.fixture
def access(hub: LoopbackHub) -> Access:
    return read_access({"HF_ENDPOINT": hub.url}, ollama=hub.url)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(stall_seconds=2) as client:
        yield client
