"""Who is let in, from where, and with how large a request: all decided before the engine is asked anything."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import re
import sys
import zlib
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import MagicMock

import httpx
import pytest
from starlette.routing import Route

from localllm.api.app import gated, port_routes
from localllm.api.control import routes as control_routes
from localllm.api.keys import OPEN_PATHS
from tests.unit.api.conftest import ADMIN_KEY, MODEL, OpenPort, PortUnderTest, listening

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"


# ---------------------------------------------------------------- keys


async def test_with_a_key_set_every_route_needs_it(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(api_keys=("secret-key",))
    # of control only the paths are looked at
    table = [*port_routes(port.runtime), *control_routes(MagicMock())]
    transport = httpx.ASGITransport(app=gated(table, port.runtime))
    routes = [route for route in table if isinstance(route, Route)]
    assert len(routes) == len(table) > 40
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for route in routes:
            path = re.sub(r"\{.*?\}", "anything", route.path)
            for method in sorted(route.methods or ()):
                if path not in OPEN_PATHS:
                    assert (await client.request(method, path)).status_code == 401, (method, path)
    assert {route.path for route in routes} >= OPEN_PATHS
    refused = await port.client.get("/v1/models")
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert refused.headers["www-authenticate"] == "Bearer"
    for path in ("/health", "/v1/health"):
        assert (await port.client.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer secret-key"}, 200),
        ({"authorization": "bearer  secret-key "}, 200),
        ({"x-api-key": "secret-key"}, 200),
        ({"authorization": f"Bearer {ADMIN_KEY}"}, 200),
        ({"authorization": "Bearer secret-kez"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Basic secret-key"}, 401),
        ({"x-api-key": ""}, 401),
        ({"authorization": "Bearer s\u00e9cret"}, 401),
    ],
)
async def test_a_key_is_taken_from_headers_only(
    open_port: OpenPort, headers: dict[str, str], status: int
) -> None:
    port: PortUnderTest = open_port(api_keys=("secret-key",))
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    assert (await port.client.get("/v1/models", headers=encoded)).status_code == status
    assert (await port.client.get("/v1/models?api_key=secret-key")).status_code == 401


async def test_control_takes_the_admin_key_only(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(api_keys=("secret-key",))
    for key, status in (("secret-key", 401), (ADMIN_KEY, 404)):
        response = await port.client.get("/localllm/state", headers={"authorization": f"Bearer {key}"})
        assert response.status_code == status
    keyless: PortUnderTest = open_port()
    assert (await keyless.client.get("/localllm/state")).status_code == 401


async def test_beyond_loopback_nothing_is_open_without_a_key(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(host="0.0.0.0")
    assert (await port.client.get("/v1/models")).status_code == 401
    assert (await port.client.post(CHAT, json=BODY)).status_code == 401
    assert (await port.client.get("/health")).status_code == 200
    assert port.engine.calls == 0


# ---------------------------------------------------------------- Host and Origin


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:11500", 200),
        ("127.0.0.1:9", 200),
        ("127.8.8.8", 200),
        ("[::1]:11500", 200),
        ("app.localhost", 200),
        ("box.lan", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:11500", 403),
        ("192.168.1.5:11500", 403),
        ("", 403),
    ],
)
async def test_foreign_hosts_are_refused_before_any_work(open_port: OpenPort, host: str, status: int) -> None:
    port: PortUnderTest = open_port(allowed_hosts=("box.lan",))
    response = await port.client.post(CHAT, json=BODY, headers={"host": host})
    assert response.status_code == status
    assert port.engine.calls == (1 if status == 200 else 0)


async def test_the_machines_own_names_are_known(open_port: OpenPort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Edge-Box.example.org")
    port: PortUnderTest = open_port()
    for host in ("edge-box:11500", "edge-box.local", "EDGE-BOX.example.org"):
        assert (await port.client.get("/v1/models", headers={"host": host})).status_code == 200, host
    assert (await port.client.get("/v1/models", headers={"host": "example.org"})).status_code == 403


async def test_a_port_on_the_network_answers_to_addresses(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(host="0.0.0.0", api_keys=("k",))
    headers = {"authorization": "Bearer k"}
    for host, status in (("192.168.1.5:11500", 200), ("rebound.example", 403)):
        assert (await port.client.get("/v1/models", headers={**headers, "host": host})).status_code == status


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "http://localhost:3000", "https://app.example.evil.example", ""],
)
async def test_foreign_origins_are_refused_before_any_work(open_port: OpenPort, origin: str) -> None:
    port: PortUnderTest = open_port(cors_origins=("https://app.example",))
    response = await port.client.post(CHAT, json=BODY, headers={"origin": origin})
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers
    assert port.engine.calls == 0


async def test_cors_is_for_exact_origins_and_preflight_needs_no_key(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(cors_origins=("https://app.example",), api_keys=("k",))
    preflight = await port.client.options(
        CHAT,
        headers={
            "origin": "https://app.example",
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization, x-stainless-arch",
        },
    )
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert preflight.headers["access-control-allow-headers"] == "authorization, x-stainless-arch"
    assert preflight.headers["vary"] == "origin"
    headers = {"origin": "https://app.example", "authorization": "Bearer k"}
    answer = await port.client.post(CHAT, json=BODY, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    refused = await port.client.post(CHAT, json=BODY, headers={"origin": "https://app.example"})
    assert refused.status_code == 401


async def test_the_ports_own_origin_is_no_stranger(port: PortUnderTest) -> None:
    response = await port.client.get("/v1/models", headers={"origin": "http://localhost:11500"})
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers


# ---------------------------------------------------------------- paths and methods


@pytest.mark.parametrize("path", ["/", "/v2/models", "/v1/chat", "/v1/chat/completions/x", "/v1/nothing"])
async def test_unknown_paths_are_404_in_the_ports_form(port: PortUnderTest, path: str) -> None:
    response = await port.client.get(path)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


async def test_wrong_methods_are_405_and_say_what_goes(port: PortUnderTest) -> None:
    response = await port.client.get(CHAT)
    assert response.status_code == 405
    assert response.json()["error"]["code"] == "method_not_allowed"
    assert response.headers["allow"] == "POST"
    assert (await port.client.delete(f"/v1/models/{MODEL}")).status_code == 405


async def test_head_and_options_are_answered(port: PortUnderTest) -> None:
    assert (await port.client.head("/v1/models")).status_code == 200
    assert (await port.client.head("/health")).status_code == 200
    options = await port.client.options(CHAT)
    assert (options.status_code, options.headers["allow"]) == (204, "OPTIONS, POST")
    assert (await port.client.options("/v1/nothing")).status_code == 404


# ---------------------------------------------------------------- bodies


async def post(port: PortUnderTest, content: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    named = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    response = await port.client.post(CHAT, content=content, headers=named)
    return response.status_code, response.json().get("error", {})


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
async def test_only_json_is_accepted(port: PortUnderTest, media_type: str) -> None:
    status, error = await post(port, json.dumps(BODY).encode(), content_type=media_type)
    assert (status, error["code"]) == (415, "unsupported_media_type")
    assert port.engine.calls == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b"[" * 100_000,
        b'{"a":' * 80 + b"1" + b"}" * 80,
        b'{"model": "\\ud800"}',
        b'{"temperature": NaN}',
        b"\xff\xfe",
        b'{"seed": 1e999}',
    ],
)
async def test_broken_json_is_400(port: PortUnderTest, content: bytes) -> None:
    status, error = await post(port, content)
    assert status == 400
    assert error["type"] == "invalid_request_error"


async def test_the_body_has_a_cap_and_images_a_larger_one(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(max_body_bytes=2000, max_image_body_bytes=8000)
    long = json.dumps({**BODY, "user": "x" * 3000}).encode()
    status, error = await post(port, long)
    assert (status, error["code"]) == (413, "request_too_large")
    with_image = json.dumps({**BODY, "metadata": {"image_url": "x" * 3000}}).encode()
    assert (await post(port, with_image))[0] == 200
    assert (await post(port, with_image + b" " * 8000))[0] == 413


async def test_an_endless_body_is_stopped_while_it_arrives(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(max_body_bytes=1000, max_image_body_bytes=1000)
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 500
            yield b"[" * 500

    response = await port.client.post(CHAT, content=endless(), headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert sent < 5000


async def test_compressed_bodies_are_read_under_the_cap(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(max_body_bytes=100_000, max_image_body_bytes=100_000)
    plain = json.dumps(BODY).encode()
    assert (await post(port, gzip.compress(plain), content_encoding="gzip"))[0] == 200
    assert (await post(port, zlib.compress(plain), content_encoding="deflate"))[0] == 200
    bomb = gzip.compress(b'{"a":"' + b"x" * 50_000_000)
    assert len(bomb) < 100_000
    assert (await post(port, bomb, content_encoding="gzip"))[0] == 413
    assert (await post(port, plain, content_encoding="gzip"))[0] == 400
    assert (await post(port, gzip.compress(plain)[:-9], content_encoding="gzip"))[0] == 400
    assert (await post(port, plain, content_encoding="br"))[0] == 415


async def test_zstd_bodies_are_decoded_under_the_cap(port: PortUnderTest) -> None:
    zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    plain = json.dumps(BODY).encode()
    assert (await post(port, zstd.compress(plain), content_encoding="zstd"))[0] == 200
    assert (await post(port, zstd.compress(b"[" * 50_000_000), content_encoding="zstd"))[0] == 413
    assert (await post(port, plain, content_encoding="zstd"))[0] == 400


async def test_a_body_that_stops_arriving_is_given_up(
    port: PortUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localllm.api.body.SILENCE_S", 0.2)
    async with listening(port.app) as number:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        answer = await asyncio.wait_for(reader.readuntil(b"}}"), 5)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408")
