"""How fast a pull is against curl, what a kill costs, and how long looking through other tools' stores takes.

    python -m benchmarks.download --json

The hub is a process of its own on loopback, so that the figure is the downloader's and not the line's. curl and the
service take turns in one run; both write to the same disk, and curl's file is hashed with sha256sum as a person would.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.support import Figure, Goal, figure, print_figures
from localllm.hub.demo import DEMO_BYTES, DEMO_SHA256, demo_model_path
from localllm.hub.discover import HeaderNotes, Places, discover, models_from
from localllm.hub.gguf_file import read_header
from localllm.settings.paths import Paths, resolve_paths
from tests.support.loopback_hub import REPOSITORY, Faults, LoopbackHub
from tests.support.other_stores import hugging_face_file, ollama_model, put
from tests.support.service_process import REAL, ServiceProcess
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.until import wait_until

MEGABYTE = 1 << 20
NAME = f"{REPOSITORY}:Q4_K_M"
MODELS = 200


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=5, help="downloads by each (default 5)")
    parser.add_argument("--kills", type=int, default=20, help="times the service is killed (default 20)")
    options = parser.parse_args()
    model = demo_model_path(resolve_paths().cache_dir)
    with tempfile.TemporaryDirectory(prefix="localllm-bench-") as folder:
        root = Path(folder)
        speed, rounds = measure_speed(model, root / "speed", options.rounds)
        resumed, kills = measure_kills(model, root / "kills", options.kills)
        discovered = measure_discovery(model, root / "stores", root)
    figures = [*speed, *resumed, *discovered]
    print_figures(figures, {"rounds": rounds, "refetched_mb": kills}, as_json=options.json)
    return 0 if all(each.met is not False for each in figures) else 1


# ---------------------------------------------------------------- speed


def measure_speed(model: Path, root: Path, rounds: int) -> tuple[list[Figure], list[dict[str, float]]]:
    """Pulls by the service and by curl, in turns, from a hub in a process of its own."""
    with hub_process(model) as url, service_at(root, url) as (service, _):
        process = psutil.Process(service.identity.pid)
        pull_once(service)  # the first one loads modules and warms the page cache for both
        before = process.memory_info().rss
        results = []
        for _ in range(rounds):
            baseline = time_curl(f"{url}/files/{model.name}", root / "curl.gguf")
            with peak_memory(process) as peak:
                cpu, began = spent(process), time.monotonic()
                pull_once(service)
                seconds, cpu = time.monotonic() - began, spent(process) - cpu
            results.append(
                {
                    "curl_s": baseline,
                    "pull_s": seconds,
                    "cpu_s": cpu,
                    "rss_growth_mb": (peak[0] - before) / MEGABYTE,
                }
            )
    ratio = statistics.median(r["pull_s"] for r in results) / statistics.median(r["curl_s"] for r in results)
    return [
        figure("download_ratio", ratio, "× curl+sha256sum", Goal("<=", 1.15)),
        figure(
            "download_mb_per_second",
            DEMO_BYTES / MEGABYTE / statistics.median(r["pull_s"] for r in results),
            "MiB/s",
        ),
        figure("service_cpu_seconds", statistics.median(r["cpu_s"] for r in results), "s"),
        figure("service_rss_growth_mb", max(r["rss_growth_mb"] for r in results), "MiB", Goal("<=", 64)),
    ], results


def pull_once(service: ServiceProcess) -> None:
    """From the request to the model in the store; then it is removed again."""
    service.post("/pull", {"reference": REPOSITORY})
    wait_until(lambda: pull_task(service)["phase"] == "done", what="the pull", within_s=120)
    assert service.get(f"/models/{NAME}")["sha256"] == DEMO_SHA256
    delete(service, NAME)


def time_curl(url: str, target: Path) -> float:
    began = time.monotonic()
    subprocess.run(["curl", "--silent", "--fail", "--output", target, url], check=True)
    found = subprocess.run(["sha256sum", target], check=True, capture_output=True, text=True).stdout
    seconds = time.monotonic() - began
    assert found.startswith(DEMO_SHA256)
    target.unlink()
    return seconds


# ---------------------------------------------------------------- kills


def measure_kills(model: Path, root: Path, kills: int) -> tuple[list[Figure], list[float]]:
    """One pull, killed at random points; what the hub had sent that is not in the state file is fetched again."""
    chance = random.Random(7)
    again: list[float] = []
    hub = LoopbackHub({model.name: model}, faults=Faults(bytes_per_second=60e6))
    with hub.serving(), service_at(root, hub.url) as (service, paths):
        service.post("/pull", {"reference": REPOSITORY})
        kept = 0
        while len(again) < kills:
            sent = hub.sent_bytes
            wait_until(
                lambda: pull_task(service)["phase"] in ("running", "done"), what="the pull", within_s=30
            )
            time.sleep(chance.uniform(0.05, 0.5))
            if pull_task(service)["phase"] == "done":
                delete(service, NAME)
                service.post("/pull", {"reference": REPOSITORY})
                kept = 0
                continue
            service.kill(signal.SIGKILL)
            fetched, recorded = hub.sent_bytes - sent, recorded_bytes(paths)
            again.append(max(0, fetched - max(0, recorded - kept)) / MEGABYTE)
            kept = recorded
            service.start()
        hub.faults = Faults()
        wait_until(lambda: pull_task(service)["phase"] == "done", what="the end", within_s=60)
        assert service.get(f"/models/{NAME}")["sha256"] == DEMO_SHA256
    return [figure("resume_refetched_mb_max", max(again), "MiB", Goal("<=", 64))], again


def recorded_bytes(paths: Paths) -> int:
    for state in (paths.store_dir / "downloads").glob("*.state"):
        return sum(end - start for start, end in json.loads(state.read_bytes())["done"])
    return 0


# ---------------------------------------------------------------- discovery


def measure_discovery(model: Path, stores: Path, root: Path) -> list[Figure]:
    """200 models in five stores, forty of them with the header of a real one: first with nothing known, then again."""
    places = fill_stores(model, stores)
    notes_file = root / "notes.json"
    began = time.monotonic()
    found = discover(places)
    models = models_from(found, HeaderNotes(notes_file), ())
    cold = time.monotonic() - began
    assert len(models) == MODELS, f"{len(models)} models"
    while any(each.architecture is None for each in models):
        models = models_from(found, HeaderNotes(notes_file), ())
    warm = []
    for _ in range(5):
        began = time.monotonic()
        assert models_from(discover(places), HeaderNotes(notes_file), ()) == models
        warm.append(time.monotonic() - began)
    return [
        figure("discover_cold_ms", cold * 1000, "ms", Goal("<=", 1000)),
        figure("discover_warm_ms", statistics.median(warm) * 1000, "ms", Goal("<=", 100)),
    ]


def fill_stores(model: Path, root: Path) -> Places:
    """The five stores; weights are holes in the files."""
    with model.open("rb") as file:
        header = file.read(read_header(model).data_offset)
    tiny = write_tiny_gguf(root.parent / "tiny.gguf", "llama", weights="f16").read_bytes()
    for number in range(MODELS // 5):
        real = number % 5 == 0
        # one byte more or less makes another digest; metadata and tensors stay
        content = (header if real else tiny) + bytes([number])
        size = DEMO_BYTES if real else len(content)
        named = f"model{number}-Q4_K_M.gguf"
        for path in (
            ollama_model(root / "ollama", f"library/model{number}/latest", content),
            hugging_face_file(root / "hub", f"maker/Model{number}-GGUF", named, content + b"h").resolve(),
            put(content, root / "llama.cpp" / named),
            put(content, root / "studio" / "maker" / f"Studio{number}" / named),
            put(content, root / "folder" / f"own{number}" / f"own{number}-Q4_K_M.gguf"),
        ):
            os.truncate(path, max(size, path.stat().st_size))
    return Places(
        ollama=(root / "ollama",),
        hugging_face=(root / "hub",),
        llama_cpp=(root / "llama.cpp",),
        lm_studio=(root / "studio",),
        folders=(root / "folder",),
    )


# ---------------------------------------------------------------- parts


@contextmanager
def hub_process(model: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.loopback_hub", str(model)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().partition("=")[2].split()[0]
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def service_at(root: Path, hub_url: str) -> Iterator[tuple[ServiceProcess, Paths]]:
    paths = resolve_paths({"LOCALLLM_HOME": str(root)})
    service = ServiceProcess(paths, module=REAL, LOCALLLM_HOME=str(root), HF_ENDPOINT=hub_url)
    try:
        yield service.start(), paths
    finally:
        service.close()
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def peak_memory(process: psutil.Process) -> Iterator[list[int]]:
    peak, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            peak[0] = max(peak[0], process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def pull_task(service: ServiceProcess) -> dict[str, Any]:
    """The newest pull."""
    tasks = [task for task in service.get("/state")["tasks"] if task["kind"] == "pull"]
    return dict(tasks[-1])


def delete(service: ServiceProcess, name: str) -> None:
    import httpx

    httpx.delete(
        f"{service.url}/localllm/models/{name}", headers=service.headers, timeout=30
    ).raise_for_status()


def spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


if __name__ == "__main__":
    os.environ.setdefault("LOCALLLM_SERVER_PORT", "0")
    sys.exit(main())
