"""A disk that fills up in the middle of a pull: a small tmpfs in a mount namespace of its own, and the real model."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localllm.core.control import FitTable
from localllm.core.errors import DiskFull
from localllm.hub.demo import DEMO_SHA256
from localllm.hub.download.throttle import Throttle
from localllm.hub.download.wire import new_client
from localllm.hub.pull_job import Job, JobProgress, Workshop
from localllm.hub.pull_plan import Sources, prepare
from localllm.hub.references import parse_reference
from localllm.hub.sources.access import read_access
from localllm.hub.store import Store
from tests.support.loopback_hub import REPOSITORY, LoopbackHub

ROOT = Path(__file__).parents[2]


def can_mount() -> bool:
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    probe = ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="mount namespaces are not allowed here")
@pytest.mark.timeout(90)
def test_a_disk_that_fills_up_keeps_the_part_and_goes_on_with_more_room(
    demo_model: Path, tmp_path: Path
) -> None:
    script = f"mount -t tmpfs -o size=100m tmpfs {tmp_path} && {sys.executable} -m {MODULE} {demo_model} {tmp_path}"
    done = subprocess.run(
        ["unshare", "-Urm", "sh", "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["full", "kept", "pulled"]


MODULE = "tests.e2e.test_pull_full_disk"


async def fill_then_finish(model: Path, disk: Path) -> None:
    """Runs inside the namespace; what it prints is what the test looks at."""
    with LoopbackHub({"gemma-Q4_K_M.gguf": model}).serving() as hub, ThreadPoolExecutor(4) as threads:
        async with new_client() as client:
            sources = Sources(client, read_access({"HF_ENDPOINT": hub.url}))
            store = Store(disk / "store")
            shop = Workshop(store=store, sources=sources, client=client, disk=threads, throttle=Throttle())
            plan = (await prepare(sources, parse_reference(REPOSITORY), recommend=no_table)).plan
            seen: list[JobProgress] = []
            job = Job(shop, plan, seen.append)
            try:
                await job.run()
            except DiskFull:
                print("full")
            assert store.list() == ()
            held = plan.size_bytes - job.missing_bytes()
            assert held > 50 << 20, held
            print("kept")
            make_room(disk)
            before = hub.sent_bytes
            assert (await job.run()).sha256 == DEMO_SHA256
            assert hub.sent_bytes - before < plan.size_bytes - (40 << 20)
            print("pulled")


def make_room(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=400m", str(disk)], check=True)


def no_table(facts: object, sizes: object) -> FitTable:
    return FitTable(
        model="m",
        device="none",
        context_length=1,
        kv_type_k="f16",
        kv_type_v="f16",
        parallel=1,
        trained_context_length=None,
        rows=(),
    )


if __name__ == "__main__":
    asyncio.run(fill_then_finish(Path(sys.argv[1]), Path(sys.argv[2])))
