"""llama.cpp's own server as a program of its own, with nothing of localllm in front: somebody else's machine."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from localllm.core.launch import LaunchPlan
from localllm.engines.llama_server.server_plan import HostPlan, HostReady


class BareServer(Struct, frozen=True):
    """``address`` has no path; ``model`` is what the server calls it."""

    address: str
    key: str
    model: str
    parallel: int


@contextmanager
def bare_server(
    model: Path, *, template: str | None = None, context_length: int = 768, parallel: int = 2
) -> Iterator[BareServer]:
    plan = LaunchPlan(
        model_path=str(model),
        context_length=context_length,
        parallel=parallel,
        threads=1,
        chat_template=template,
    )
    key = "a key of the other machine"
    with subprocess.Popen(
        [sys.executable, "-m", "localllm.engines.llama_server.host"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(HostPlan(plan=plan, key=key)) + b"\n")
            process.stdin.flush()
            ready = msgspec.json.decode(process.stdout.readline(), type=HostReady)
            yield BareServer(ready.address, key, _listed(ready.address, key), parallel)
        finally:
            process.kill()


def _listed(address: str, key: str) -> str:
    request = urllib.request.Request(f"{address}/v1/models", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        name: str = json.load(answer)["data"][0]["id"]
    return name
