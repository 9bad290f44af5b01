"""The service as a process: one at a time, killed, drained, restarted; chats and partial replies survive."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from localllm.hub.store import Store
from localllm.settings.identity import read_identity
from localllm.settings.paths import Paths
from tests.support.service_process import REAL, ServiceProcess, run_verb, verb_json
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.until import wait_until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def service(paths: Paths) -> Iterator[ServiceProcess]:
    """Running, with one model called ``demo``."""
    paths.data_dir.mkdir(parents=True)
    model = write_tiny_gguf(paths.data_dir / "tiny.gguf", "llama")
    Store(paths.store_dir).import_file(model, name="demo", mode="reference")
    process = ServiceProcess(paths)
    yield process.start()
    process.close()


# ---------------------------------------------------------------- one at a time


def test_a_second_service_names_the_first_and_exits_3(service: ServiceProcess, paths: Paths) -> None:
    second = ServiceProcess(paths)
    assert second.launch().wait(timeout=30) == 3
    assert service.url in second.output.read_text()
    assert httpx.get(f"{service.url}/health").status_code == 200


def test_of_many_started_at_once_one_runs_and_the_others_exit_3(paths: Paths) -> None:
    starters = [ServiceProcess(paths) for _ in range(4)]
    for starter in starters:
        starter.launch()
    try:
        wait_until(lambda: _running(starters) == 1 and read_identity(paths) is not None, what="one winner")
        codes = [s.process.returncode for s in starters if s.process and s.process.returncode is not None]
        assert codes == [3, 3, 3]
    finally:
        for starter in starters:
            starter.close()


def test_the_same_port_of_our_own_service_is_already_running(service: ServiceProcess) -> None:
    again = run_verb("serve", "--port", str(service.identity.port))
    assert again.returncode == 3
    assert str(service.identity.pid) in again.stderr


@pytest.mark.parametrize(
    ("answers", "named"),
    [(b"Ollama is running", "Ollama"), (b"hello", "another program")],
)
def test_a_port_in_use_says_by_whom(answers: bytes, named: str, paths: Paths) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers if self.path == "/" else b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        done = run_verb("serve", "--port", str(server.server_port))
        server.shutdown()
        thread.join()
    assert done.returncode == 6
    assert named in done.stderr and "server.port" in done.stderr


def test_another_homes_service_on_the_port_is_told_apart(
    service: ServiceProcess, tmp_path: os.PathLike[str]
) -> None:
    done = run_verb("serve", "--port", str(service.identity.port), LOCALLLM_HOME=str(tmp_path))
    assert done.returncode == 6
    assert "another localllm service" in done.stderr


def test_an_open_address_without_keys_is_refused(paths: Paths) -> None:
    done = run_verb("serve", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "api_keys" in done.stderr
    assert not paths.identity_file.exists()


# ---------------------------------------------------------------- its files


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_what_lies_in_the_state_folder_is_the_users_alone(service: ServiceProcess, paths: Paths) -> None:
    assert stat.S_IMODE(paths.state_dir.stat().st_mode) == 0o700
    for path in paths.state_dir.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.skipif(os.name != "posix", reason="links are POSIX's")
def test_a_planted_link_is_refused(paths: Paths, tmp_path: os.PathLike[str]) -> None:
    paths.state_dir.mkdir(parents=True, mode=0o700)
    paths.admin_key_file.symlink_to("/etc/hostname")
    process = ServiceProcess(paths)
    assert process.launch().wait(timeout=30) == 10
    assert "cannot be trusted" in process.output.read_text()


def test_control_needs_the_admin_key(service: ServiceProcess) -> None:
    for path in ("/state", "/chats", "/config", "/logs"):
        assert httpx.get(f"{service.url}/localllm{path}").status_code == 401
    assert httpx.get(f"{service.url}/localllm/identity").json()["nonce"] == service.identity.nonce


# ---------------------------------------------------------------- kill and drain


def test_kill_9_leaves_a_partial_reply_and_the_next_start_goes_on(service: ServiceProcess) -> None:
    chat = service.post("/chats", {"settings": {"model": "demo"}})["summary"]["id"]
    sent = service.post(f"/chats/{chat}/send", {"content": "HANG please"})
    stored = _when_stored(service, sent["reply_id"])
    service.kill()
    service.start()

    detail = service.get(f"/chats/{chat}")
    user, reply = detail["messages"]
    assert user["content"] == "HANG please"
    assert (reply["state"], reply["content"]) == ("partial", "a beginning") and stored
    assert detail["leaf_id"] == sent["reply_id"]
    assert service.chat("hello").json()["choices"][0]["message"]["content"] == "You said: hello"


def test_term_lets_a_running_stream_end(service: ServiceProcess) -> None:
    with service.streamed("LONG", max_tokens=20_000) as lines:
        next(lines)
        assert service.process is not None
        service.process.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert rest[-1] == "data: [DONE]"
    assert service.process.wait(timeout=30) == 0
    assert not service.paths.identity_file.exists()


def test_what_does_not_end_while_draining_gets_an_error_and_no_done(
    paths: Paths, service: ServiceProcess
) -> None:
    with service.streamed("HANG") as lines:
        next(lines)
        service.post("/shutdown", {"drain_seconds": 0.2})
        rest = list(lines)
    assert "error" in json.loads(rest[-1].removeprefix("data: "))
    assert "data: [DONE]" not in rest
    assert service.process is not None and service.process.wait(timeout=30) == 0


def test_new_work_is_refused_while_draining(service: ServiceProcess) -> None:
    with service.streamed("HANG") as lines:
        next(lines)
        service.post("/shutdown", {"drain_seconds": 20})
        wait_until(lambda: service.chat("hello").status_code == 503, what="a refusal")
        service.post("/shutdown", {})  # asked a second time: now
        list(lines)
    assert service.process is not None and service.process.wait(timeout=30) == 0


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="terminals that hang up are POSIX's")
def test_a_terminal_that_hangs_up_stops_nothing(service: ServiceProcess) -> None:
    assert service.process is not None
    service.process.send_signal(signal.SIGHUP)
    assert service.chat("still here").status_code == 200


def test_a_crash_in_mid_reply_keeps_what_was_said_and_the_next_request_works(service: ServiceProcess) -> None:
    with service.streamed("CRASH") as lines:
        received = list(lines)
    assert json.loads(received[-1].removeprefix("data: "))["error"]["code"] == "engine_crashed"
    assert "data: [DONE]" not in received

    chat = service.post("/chats", {"settings": {"model": "demo"}})["summary"]["id"]
    service.post(f"/chats/{chat}/send", {"content": "CRASH"})
    wait_until(
        lambda: service.get(f"/chats/{chat}")["messages"][-1]["state"] == "partial", what="the partial reply"
    )
    assert service.get(f"/chats/{chat}")["messages"][-1]["content"] == "half an"
    assert service.chat("hello").status_code == 200


# ---------------------------------------------------------------- the verbs


def test_status_and_stop(service: ServiceProcess) -> None:
    status = verb_json("status")
    assert status["running"] and status["identity"]["pid"] == service.identity.pid

    assert run_verb("stop").returncode == 0
    assert service.process is not None and service.process.wait(timeout=10) == 0
    assert run_verb("status").returncode == 5
    assert run_verb("stop").returncode == 5


def test_started_by_several_at_once_all_get_the_same_service(paths: Paths) -> None:
    try:
        with ThreadPoolExecutor(4) as pool:
            started = list(pool.map(lambda _: verb_json("start"), range(4)))
        assert len({status["identity"]["nonce"] for status in started}) == 1
    finally:
        run_verb("stop", "--drain", "0")


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
def test_a_service_that_hangs_is_seen_and_stopped(service: ServiceProcess) -> None:
    assert service.process is not None
    service.process.send_signal(signal.SIGSTOP)
    status = run_verb("status")
    assert status.returncode == 5
    assert f"pid {service.process.pid}) does not answer" in status.stdout
    waker = threading.Timer(1.0, service.process.send_signal, [signal.SIGCONT])
    waker.start()
    assert run_verb("stop", "--drain", "1").returncode == 0
    waker.join()
    assert service.process.wait(timeout=10) == 0


def test_start_is_detached_and_restart_gives_another_process(paths: Paths) -> None:
    try:
        first = verb_json("start")
        assert os.getsid(first["identity"]["pid"]) == first["identity"]["pid"]
        assert verb_json("start")["identity"] == first["identity"]
        assert run_verb("restart").returncode == 0
        second = verb_json("status")
        assert second["identity"]["nonce"] != first["identity"]["nonce"]
    finally:
        run_verb("stop", "--drain", "0")
    assert read_identity(paths) is None


def test_a_service_that_is_asked_to_restarts_itself_in_place(paths: Paths) -> None:
    process = ServiceProcess(paths, module=REAL)
    try:
        before = process.start().identity
        process.post("/shutdown", {"restart": True, "drain_seconds": 0})
        wait_until(lambda: _nonce(paths) not in (None, before.nonce), what="another service")
        after = process.identity
        assert (after.pid, after.nonce != before.nonce) == (before.pid, True)
        assert process.get("/state")["identity"]["nonce"] == after.nonce
    finally:
        process.close()


def test_a_service_that_cannot_start_says_why(paths: Paths) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_verb("start", LOCALLLM_SERVER_PORT=str(taken.getsockname()[1]))
    assert done.returncode == 6
    assert "in use" in done.stderr


def _nonce(paths: Paths) -> str | None:
    identity = read_identity(paths)
    return identity.nonce if identity else None


def _running(services: Sequence[ServiceProcess]) -> int:
    return sum(s.process is not None and s.process.poll() is None for s in services)


def _when_stored(service: ServiceProcess, message_id: str) -> str:
    """The reply's text as it is on disk, once there is some: what a crash cannot take away."""
    text = ""

    def stored() -> bool:
        nonlocal text
        connection = sqlite3.connect(f"file:{service.paths.database_file}?mode=ro", uri=True)
        try:
            row = connection.execute("SELECT content FROM messages WHERE id = ?", (message_id,)).fetchone()
        finally:
            connection.close()
        text = row[0] if row else ""
        return bool(text)

    wait_until(stored, what="a stored reply")
    return text
