"""A hub on loopback: Hugging Face and an Ollama registry over real HTTP, serving real files, and misbehaving on demand.

Threads and sockets of the standard library, so that what the downloader meets is a real server: connections that break,
bodies that are too short, ranges that are ignored. ``python -m tests.support.loopback_hub FILE`` serves one file.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "maker/Tiny-GGUF"
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 253113024\n"
PORTAL = b"<!doctype html><title>Welcome to our free Wi-Fi</title>"
_BLOCK = 1 << 18


@dataclass
class Faults:
    """What goes wrong; counters go down as they are used up. Everything may be changed while it serves."""

    drop_after_bytes: int | None = None
    drops: int = 1 << 30
    ignore_range: bool = False
    too_long: bool = False
    unsatisfiable: int = 0
    stall_after_bytes: int | None = None
    stalls: int = 1
    flip_byte: int | None = None
    flips: int = 1
    etag: str | None = None
    refuse_signatures: int = 0
    busy: int = 0
    retry_after: str = "0"
    unavailable: int = 0
    listed_size: int | None = None
    body: bytes | None = None
    need_token: str | None = None
    bytes_per_second: float | None = None
    realm: str | None = None
    next_page: str | None = None
    redirect: str | None = None
    digest: str | None = None


@dataclass
class Seen:
    """One request as it came in."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class LoopbackHub:
    """``files`` by their name in the repository; each is also a layer of the registry's models."""

    files: Mapping[str, bytes | Path]
    faults: Faults = field(default_factory=Faults)
    layers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    sent_bytes: int = 0
    cdn: str = ""
    port: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.digests = {name: _digest(content) for name, content in self.files.items()}
        self.by_digest = {self.digests[name]: content for name, content in self.files.items()}
        self.signature = 1
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def size_of(self, name: str) -> int:
        return _size(self.files[name])

    def requests_for(self, part: str) -> list[Seen]:
        return [seen for seen in self.seen if part in seen.path]

    def take(self, counter: str) -> bool:
        """Use up one of a counted fault; False when there is none left."""
        with self.lock:
            left = getattr(self.faults, counter)
            if left <= 0:
                return False
            setattr(self.faults, counter, left - 1)
            return True

    @contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator[LoopbackHub]:
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        server = _Server(("127.0.0.1", self.port), Handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        self.cdn = self.cdn or self.url
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.released.set()
            server.shutdown()
            server.server_close()
            thread.join(10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that leaves is what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    hub: LoopbackHub
    protocol_version = "HTTP/1.1"
    # a large body is written in blocks of its own; small answers must not wait for more
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        hub = self.hub
        hub.seen.append(Seen(self.command, self.path, dict(self.headers.items())))
        path = unquote(urlsplit(self.path).path)
        faults = hub.faults
        if hub.take("busy"):
            return self._answer(429, b"", {"Retry-After": faults.retry_after})
        if hub.take("unavailable"):
            return self._answer(503, b"")
        if faults.need_token and self.headers.get("Authorization") != f"Bearer {faults.need_token}":
            return self._refuse(path)
        if path.startswith("/api/models/") and "/revision/" in path:
            return self._json({"sha": COMMIT, "gated": False, "cardData": {"license": "apache-2.0"}})
        if path.startswith("/api/models/") and "/tree/" in path:
            return self._tree()
        if path == "/api/models":
            return self._json([{"id": REPOSITORY, "downloads": 12, "likes": 3, "gated": False}])
        if match := re.fullmatch(rf"/[^/]+/[^/]+/resolve/{COMMIT}/(.+)", path):
            return self._resolve(match[1])
        if path.startswith("/cdn/"):
            return self._signed(path.removeprefix("/cdn/"))
        if path.startswith("/files/"):
            return self._blob(hub.files.get(path.removeprefix("/files/")), '"v1"')
        if match := re.fullmatch(r"/v2/(.+)/manifests/([^/]+)", path):
            return self._manifest(match[1], match[2])
        if match := re.fullmatch(r"/v2/.+/blobs/sha256:(.+)", path):
            return self._blob(hub.by_digest.get(match[1]), f'"{match[1]}"')
        if path == "/token":
            return self._json({"token": faults.need_token or "anonymous"})
        return self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})

    # ------------------------------------------------------------ Hugging Face

    def _tree(self) -> None:
        """Two entries a page, as a real hub pages by Link."""
        hub = self.hub
        page = int(parse_qs(urlsplit(self.path).query).get("cursor", ["0"])[0])
        entries: list[dict[str, Any]] = [{"type": "file", "path": "README.md", "size": 10}]
        for name, digest in hub.digests.items():
            size = hub.faults.listed_size if hub.faults.listed_size is not None else _size(hub.files[name])
            oid = hub.faults.digest if hub.faults.digest is not None else digest
            entries.append({"type": "file", "path": name, "size": size, "lfs": {"oid": oid, "size": size}})
        headers = {}
        if page + 2 < len(entries):
            path = urlsplit(self.path).path
            target = hub.faults.next_page or f"{hub.url}{path}?recursive=true&cursor={page + 2}"
            headers["Link"] = f'<{target}>; rel="next"'
        self._json(entries[page : page + 2], headers)

    def _resolve(self, name: str) -> None:
        hub = self.hub
        if name not in hub.files:
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        target = hub.faults.redirect or f"{hub.cdn}/cdn/{hub.digests[name]}?signature={hub.signature}"
        self._answer(
            302,
            b"",
            {
                "Location": target,
                "X-Repo-Commit": COMMIT,
                "X-Linked-Size": str(_size(hub.files[name])),
                "X-Linked-Etag": f'"{hub.digests[name]}"',
            },
        )

    def _signed(self, digest: str) -> None:
        hub = self.hub
        if hub.take("refuse_signatures"):
            hub.signature += 1
        given = parse_qs(urlsplit(self.path).query).get("signature", ["0"])[0]
        if given != str(hub.signature):
            return self._answer(403, b"<Error>Request has expired</Error>")
        self._blob(hub.by_digest.get(digest), f'"{digest[:32]}"')

    # ------------------------------------------------------------ Ollama

    def _manifest(self, repository: str, tag: str) -> None:
        hub = self.hub
        layers = hub.layers.get(f"{repository}:{tag}")
        if layers is None:
            return self._answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        entries = [
            {
                "mediaType": f"application/vnd.ollama.image.{kind}",
                "digest": hub.faults.digest
                if hub.faults.digest is not None
                else f"sha256:{hub.digests[name]}",
                "size": _size(hub.files[name]),
            }
            for kind, name in layers.items()
        ]
        body = json.dumps({"schemaVersion": 2, "layers": entries}).encode()
        self._answer(200, body, {"Content-Type": "text/plain; charset=utf-8"})

    def _refuse(self, path: str) -> None:
        headers = {"X-Error-Code": "GatedRepo"}
        if path.startswith("/v2/"):
            realm = self.hub.faults.realm or f"{self.hub.url}/token"
            headers = {"WWW-Authenticate": f'Bearer realm="{realm}",service="hub",scope="repository:x:pull"'}
        if path == "/token":
            return self._json({"token": self.hub.faults.need_token or ""})
        self._answer(401, b"", headers)

    # ------------------------------------------------------------ bytes

    def _blob(self, content: bytes | Path | None, etag: str) -> None:
        hub, faults = self.hub, self.hub.faults
        if content is None:
            return self._answer(404, b"")
        if faults.body is not None:
            kind = "text/html" if faults.body.startswith(b"<") else "application/octet-stream"
            return self._answer(200, faults.body, {"Content-Type": kind})
        etag = faults.etag or etag
        size = _size(content)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        whole = not wanted or faults.ignore_range or self.headers.get("If-Range", etag) != etag
        if whole:
            start, end = 0, size
        else:
            assert wanted is not None
            start = int(wanted[1])
            end = min(int(wanted[2]) + 1 if wanted[2] else size, size)
            if start >= size or hub.take("unsatisfiable"):
                return self._answer(416, b"", {"Content-Range": f"bytes */{size}"})
        extra = 1000 if faults.too_long and not whole else 0
        self.send_response(200 if whole else 206)
        self.send_header("Content-Length", str(end - start + extra))
        self.send_header("ETag", etag)
        self.send_header("Content-Type", "application/octet-stream")
        if not whole:
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.end_headers()
        if self.command != "HEAD":
            self._send(content, start, end)
            self.wfile.write(b"x" * extra)

    def _send(self, content: bytes | Path, start: int, end: int) -> None:
        hub, faults = self.hub, self.hub.faults
        if isinstance(content, Path) and faults == Faults():
            return self._send_file(content, start, end)
        sent = 0
        for offset in range(start, end, _BLOCK):
            block = bytearray(_read(content, offset, min(_BLOCK, end - offset)))
            at = faults.flip_byte
            if at is not None and offset <= at < offset + len(block) and hub.take("flips"):
                block[at - offset] ^= 0xFF
            if (
                faults.stall_after_bytes is not None
                and sent >= faults.stall_after_bytes
                and hub.take("stalls")
            ):
                hub.released.wait(60)
                return self._hang_up()
            if (
                faults.drop_after_bytes is not None
                and sent + len(block) > faults.drop_after_bytes
                and hub.take("drops")
            ):
                self.wfile.write(block[: faults.drop_after_bytes - sent])
                return self._hang_up()
            self.wfile.write(block)
            sent += len(block)
            hub.sent_bytes += len(block)
            if faults.bytes_per_second:
                time.sleep(len(block) / faults.bytes_per_second)

    def _send_file(self, path: Path, start: int, end: int) -> None:
        self.wfile.flush()
        with path.open("rb") as file:
            self.connection.sendfile(file, start, end - start)
        self.hub.sent_bytes += end - start

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _json(self, value: object, headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self._answer(200, body, {"Content-Type": "application/json", **(headers or {})})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _size(content: bytes | Path) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _read(content: bytes | Path, offset: int, length: int) -> bytes:
    if isinstance(content, bytes):
        return content[offset : offset + length]
    with content.open("rb") as file:
        file.seek(offset)
        return file.read(length)


def _digest(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    path = Path(sys.argv[1])
    hub = LoopbackHub({path.name: path}, port=int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    with hub.serving():
        print(f"HF_ENDPOINT={hub.url}  hf.co/{REPOSITORY}  {hub.url}/files/{quote(path.name)}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
