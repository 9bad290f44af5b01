"""The service with its own engine on the real small model: loads by itself, answers, and outlives its engine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from localllm.hub.store import Store
from localllm.settings.paths import Paths
from tests.support.service_process import REAL, ServiceProcess
from tests.support.until import wait_until

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(300)]


@pytest.fixture
def service(paths: Paths, demo_model: Path) -> Iterator[ServiceProcess]:
    """Running on the real model, one thread, 1024 tokens for each of two requests."""
    Store(paths.store_dir).import_file(demo_model, name="demo", mode="reference")
    process = ServiceProcess(
        paths,
        module=REAL,
        LOCALLLM_ENGINE_THREADS="1",
        LOCALLLM_ENGINE_CONTEXT_LENGTH="1024",
        LOCALLLM_ENGINE_PARALLEL="2",
    )
    yield process.start()
    process.close()


def _children(service: ServiceProcess) -> list[psutil.Process]:
    return psutil.Process(service.identity.pid).children(recursive=True)


def _chat(service: ServiceProcess) -> str:
    chat = service.post("/chats", {"settings": {"model": "demo", "max_tokens": 400, "temperature": 0.8}})
    return str(chat["summary"]["id"])


def test_the_first_request_loads_the_model_and_what_was_planned_is_what_it_took(
    service: ServiceProcess,
) -> None:
    answer = service.chat("Once upon a time", max_tokens=8)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    assert 1 <= usage["completion_tokens"] <= 8

    (instance,) = service.get("/state")["instances"]
    assert (instance["context_length"], instance["parallel"]) == (1024, 2)
    assert instance["measured_bytes"] == pytest.approx(instance["planned_bytes"], rel=0.25)
    (record,) = service.get("/requests")["records"]
    assert record["status"] == 200 and record["ttft_ms"] > 0


def test_an_engine_killed_in_mid_reply_leaves_a_partial_reply_and_the_next_request_works(
    service: ServiceProcess,
) -> None:
    chat = _chat(service)
    sent = service.post(f"/chats/{chat}/send", {"content": "Tell me a long story."})

    def some_text() -> str:
        return str(service.get(f"/chats/{chat}")["messages"][-1]["content"])

    wait_until(lambda: len(some_text()) > 20, within_s=60, what="some of the reply")
    said = some_text()
    pid = service.identity.pid
    for child in _children(service):
        os.kill(child.pid, signal.SIGKILL)
    wait_until(
        lambda: service.get(f"/chats/{chat}")["messages"][-1]["state"] != "streaming", what="the reply's end"
    )

    reply = service.get(f"/chats/{chat}")["messages"][-1]
    assert (reply["id"], reply["state"]) == (sent["reply_id"], "partial")
    assert reply["content"].startswith(said) and reply["error"]
    assert service.chat("And now?", max_tokens=4).status_code == 200
    assert service.identity.pid == pid
    assert len(_children(service)) == 1


def test_a_stream_cut_off_by_a_dead_engine_has_an_error_and_no_done(service: ServiceProcess) -> None:
    service.chat("warm up", max_tokens=1)
    with service.streamed("Tell me a long story.", max_tokens=400) as lines:
        for line in lines:
            if '"content":"' in line and '"content":""' not in line:
                break
        for child in _children(service):
            os.kill(child.pid, signal.SIGKILL)
        rest = list(lines)
    assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "engine_crashed"
    assert "data: [DONE]" not in rest


def test_a_killed_service_leaves_no_engine_behind(service: ServiceProcess) -> None:
    service.chat("warm up", max_tokens=1)
    engines = _children(service)
    assert engines
    service.kill()
    gone, alive = psutil.wait_procs(engines, timeout=20)
    assert not alive and gone
    service.start()
    assert service.chat("hello again", max_tokens=2).status_code == 200


def test_a_file_that_is_not_a_model_is_a_worded_error_and_the_service_stays(
    service: ServiceProcess, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"<!DOCTYPE html><html>login</html>")
    task = service.post("/import", {"path": str(bad)})

    def failed() -> bool:
        tasks = [t for t in service.get("/state")["tasks"] if t["id"] == task["id"]]
        return bool(tasks) and tasks[0]["error_code"] == "bad_gguf" and "HTML" in tasks[0]["error"]

    wait_until(failed, what="the failed task")
    assert service.chat("hello", max_tokens=2).status_code == 200
