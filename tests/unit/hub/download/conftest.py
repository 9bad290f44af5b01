"""Small pieces, so that a few megabytes are fetched as gigabytes would be: in parallel, committed often, resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from localllm.hub.download import transfer
from localllm.hub.download.wire import new_client


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PIECE_BYTES", 512 << 10)
    monkeypatch.setattr(transfer, "READ_BYTES", 64 << 10)
    monkeypatch.setattr(transfer, "COMMIT_BYTES", 512 << 10)
    monkeypatch.setattr(transfer, "MAX_UNRECORDED_BYTES", 1 << 20)


@pytest.fixture
def disk() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with new_client(stall_seconds=0.5) as client:
        yield client
