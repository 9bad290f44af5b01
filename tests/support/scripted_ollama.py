"""An Ollama that says what a test tells it to, over real HTTP: what a real one will not do on demand.

Errors inside an answer whose status was 200, counts that go backwards, answers that end without saying so or break in
the middle, an old version whose answers lack fields, a context that is not the one asked for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DONE = {
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 5,
    "prompt_eval_duration": 1_000_000,
    "eval_count": 2,
    "eval_duration": 2_000_000,
}


def said(text: str, **fields: Any) -> dict[str, Any]:
    """A line of ``/api/chat``."""
    return {"message": {"role": "assistant", "content": text, **fields}, "done": False}


@dataclass
class ScriptedOllama:
    """Everything may be changed while it serves. ``lines`` is what a generation answers; ``breaks``: the connection is
    cut after them; ``hangs``: nothing more comes until the server stops. ``asked`` notes the bodies by path."""

    version: str | None = "0.24.0"
    models: dict[str, list[str] | None] = field(default_factory=lambda: {"tiny:latest": ["completion"]})
    context_length: int | None = 256
    size: int = 1000
    size_vram: int = 400
    lines: list[dict[str, Any] | bytes] = field(default_factory=lambda: [said("Hel"), said("lo"), dict(DONE)])
    status: int = 200
    error: str = ""
    breaks: bool = False
    hangs: bool = False
    embeddings: list[list[float]] = field(default_factory=lambda: [[3.0, 4.0]])
    loads: bool = True
    html: bool = False
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    url: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for where, body in self.asked if where == path]


@contextmanager
def scripted_ollama() -> Iterator[ScriptedOllama]:
    script = ScriptedOllama()

    class Handler(_Handler):
        ollama = script

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        script.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield script
        finally:
            script.stopped.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    ollama: ScriptedOllama
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        return

    def do_GET(self) -> None:
        script = self.ollama
        if script.html:
            self._send(200, b"<html>Not Ollama</html>")
        elif self.path == "/api/version" and script.version is not None:
            self._json({"version": script.version})
        elif self.path == "/api/ps":
            resident = {"size": script.size, "size_vram": script.size_vram}
            if script.context_length is not None:
                resident["context_length"] = script.context_length
            self._json({"models": [{"name": name} | resident for name in script.models if script.loads]})
        elif self.path == "/api/tags":
            self._json({"models": [{"name": name, "size": script.size} for name in script.models]})
        else:
            self._send(404, b"404 page not found")

    def do_HEAD(self) -> None:
        self._send(404, b"")

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
        body = json.loads(content) if self.headers.get("content-type") == "application/json" else {}
        self.ollama.asked.append((self.path, body))
        match self.path:
            case "/api/show":
                self._show(body["model"])
            case "/api/create":
                self.ollama.models[f"{body['model']}:latest"] = ["completion"]
                self._json({"status": "success"})
            case "/api/embed":
                self._json({"embeddings": self.ollama.embeddings, "prompt_eval_count": 3})
            case "/api/chat" | "/api/generate" if body.get("stream"):
                self._generate()
            case "/api/generate":
                self._json({"done": True, "done_reason": "load"})
            case _:
                self._json({})

    def _show(self, name: str) -> None:
        tagged = name if ":" in name else f"{name}:latest"
        if tagged not in self.ollama.models:
            self._json({"error": f"model '{name}' not found"}, 404)
            return
        features = self.ollama.models[tagged]
        self._json({"template": "{{ .Prompt }}"} | ({} if features is None else {"capabilities": features}))

    def _generate(self) -> None:
        script = self.ollama
        if script.status != 200:
            self._json({"error": script.error}, script.status)
            return
        self.send_response(200)
        self.send_header("content-type", "application/x-ndjson")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in script.lines:
            content = line if isinstance(line, bytes) else json.dumps(line).encode()
            self._chunk(content + b"\n")
        if script.hangs:
            script.stopped.wait(30)
        if script.breaks or script.hangs:
            self.close_connection = True
            return
        self._chunk(b"")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()

    def _json(self, body: object, status: int = 200) -> None:
        self._send(status, json.dumps(body).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
