"""Many clients that come, leave early and are refused: afterwards nothing is held and nothing has grown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import httpx
import psutil
import pytest

from localllm.hub.store import Store
from localllm.settings.paths import Paths
from tests.support.service_process import ServiceProcess
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.until import wait_until

_CLIENTS = 16
_ROUNDS = 12


@pytest.fixture
def service(paths: Paths) -> Iterator[ServiceProcess]:
    paths.data_dir.mkdir(parents=True)
    model = write_tiny_gguf(paths.data_dir / "tiny.gguf", "llama")
    Store(paths.store_dir).import_file(model, name="demo", mode="reference")
    process = ServiceProcess(paths, LOCALLLM_SERVER_QUEUE_LIMIT="4")
    yield process.start()
    process.close()


async def _storm(url: str, seed: int) -> dict[int, int]:
    """Every client asks again and again, now and then leaving in mid-stream; how often each status came."""
    statuses: dict[int, int] = {}

    async def client(number: int) -> None:
        choices = random.Random(seed * 100 + number)
        async with httpx.AsyncClient(base_url=url, timeout=60) as http:
            for _ in range(_ROUNDS):
                text = choices.choice(["hello", "LONG", "HANG", "THINK"])
                patience = choices.choice([1, 3, 10]) if text in ("LONG", "HANG") else 1000
                body = {
                    "model": "demo",
                    "messages": [{"role": "user", "content": text}],
                    "stream": True,
                    "max_tokens": 2000,
                }
                async with http.stream("POST", "/v1/chat/completions", json=body) as response:
                    statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
                    lines = response.aiter_lines()
                    for _ in range(patience):
                        if await anext(lines, None) is None:
                            break
                        if text == "HANG":
                            break

    async with asyncio.TaskGroup() as group:
        for number in range(_CLIENTS):
            group.create_task(client(number))
    return statuses


@pytest.mark.timeout(180)
def test_clients_that_leave_free_their_places_and_nothing_grows(service: ServiceProcess) -> None:
    process = psutil.Process(service.identity.pid)
    asyncio.run(_storm(service.url, seed=0))
    _wait_until_quiet(service)
    files, resident_bytes = process.num_fds(), process.memory_info().rss

    statuses = asyncio.run(_storm(service.url, seed=1))
    _wait_until_quiet(service)

    assert set(statuses) <= {200, 429} and statuses[200] > _CLIENTS
    assert process.num_fds() <= files + 2
    assert process.memory_info().rss < resident_bytes + (20 << 20)
    assert service.chat("hello").json()["choices"][0]["message"]["content"] == "You said: hello"


def _wait_until_quiet(service: ServiceProcess) -> None:
    def quiet() -> bool:
        state = service.get("/state")
        return not state["requests"] and all(i["running"] == i["waiting"] == 0 for i in state["instances"])

    wait_until(quiet, what="every place to be free")
