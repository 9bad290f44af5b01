"""Pulling the real model from a hub on loopback, as a person does it, and through the death of the service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localllm.hub.demo import DEMO_BYTES, DEMO_SHA256
from localllm.settings.paths import Paths
from tests.support.loopback_hub import REPOSITORY, Faults, LoopbackHub
from tests.support.service_process import REAL, ServiceProcess, run_verb, verb_json
from tests.support.until import wait_until

NAME = f"{REPOSITORY}:Q4_K_M"
MAX_FETCHED_AGAIN = 64 << 20


@pytest.fixture
def hub(demo_model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    with LoopbackHub({"gemma-3-270m-Q4_K_M.gguf": demo_model}).serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub


@pytest.fixture
def service(paths: Paths, hub: LoopbackHub) -> Iterator[ServiceProcess]:
    service = ServiceProcess(paths, module=REAL).start()
    yield service
    service.close()


def pull_task(service: ServiceProcess) -> dict[str, Any]:
    (task,) = (task for task in service.get("/state")["tasks"] if task["kind"] == "pull")
    return dict(task)


def until_done(service: ServiceProcess, fraction: float) -> Callable[[], bool]:
    def reached() -> bool:
        task = pull_task(service)
        assert task["phase"] in ("waiting", "running", "done"), task
        return bool(task["done"] >= fraction * DEMO_BYTES) or task["phase"] == "done"

    return reached


def recorded_bytes(paths: Paths) -> int:
    """What the state file beside the part says is safe: all that a new service will not fetch again."""
    (state,) = (paths.store_dir / "downloads").glob("*.state")
    done = json.loads(state.read_bytes())["done"]
    return sum(end - start for start, end in done)


@pytest.mark.timeout(180)
def test_killed_three_times_it_ends_with_the_right_file(
    service: ServiceProcess, hub: LoopbackHub, paths: Paths
) -> None:
    hub.faults = Faults(bytes_per_second=30e6)
    service.post("/pull", {"reference": REPOSITORY})
    for fraction in (0.3, 0.6, 0.95):
        wait_until(until_done(service, fraction), what=f"{fraction:.0%}", within_s=60)
        seen = pull_task(service)["done"]
        service.kill()
        assert seen - recorded_bytes(paths) <= MAX_FETCHED_AGAIN
        service.start()
    wait_until(lambda: pull_task(service)["phase"] == "done", what="the end", within_s=60)
    assert service.get(f"/models/{NAME}")["sha256"] == DEMO_SHA256
    assert [path.suffix for path in (paths.store_dir / "downloads").iterdir()] == [".lock"]


def test_a_person_pulls_looks_and_runs(service: ServiceProcess, hub: LoopbackHub) -> None:
    preview = verb_json("pull", REPOSITORY, "--dry-run")
    assert (preview["name"], preview["here"], preview["quant"]) == (NAME, False, "Q4_K_M")
    table = verb_json("fit", REPOSITORY)
    assert [row["file_bytes"] for row in table["rows"] if row["file_bytes_source"] == "listed"] == [
        DEMO_BYTES
    ]
    assert hub.sent_bytes < 16 << 20, "only the header"
    done = run_verb("pull", REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Pulled {NAME}.\n"
    assert "fits" in done.stderr
    assert [model["name"] for model in verb_json("list")["models"]] == [NAME]
    answer = run_verb("run", NAME, "Hello", "--max-tokens", "4", LOCALLLM_ENGINE_THREADS="1")
    assert answer.returncode == 0, answer.stderr
    assert run_verb("rm", NAME, "--force", "--yes").returncode == 0
    assert verb_json("list")["models"] == []


def test_what_cannot_be_pulled_is_said_with_its_exit_code(service: ServiceProcess) -> None:
    for name, code in (
        ("hf.co/o/../r", 2),
        ("./file.gguf", 2),
        ("nosuchmodel:8b", 4),
        (f"{REPOSITORY}:Q8_0", 4),
    ):
        refused = run_verb("pull", name)
        assert (refused.returncode, refused.stdout) == (code, ""), refused.stderr
        assert "Traceback" not in refused.stderr
