from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from localllm.core.errors import DownloadFailed, Gated, LocalLLMError, NotFound, Offline, RateLimited
from localllm.hub.download import wire
from localllm.hub.download.wire import (
    check_status,
    content_range,
    fetch_small,
    follow,
    forbid_private,
    network_errors,
    new_client,
    origin,
    retry_after,
)
from tests.support.loopback_hub import LoopbackHub

Answer = httpx.Response
ALLOWED = ("hub.example:443", "cdn.example:443", "sink.example:443")


def transport(answers: dict[str, Answer], seen: list[httpx.Request]) -> httpx.AsyncClient:
    def handle(request: httpx.Request) -> Answer:
        seen.append(request)
        return answers[str(request.url)]

    return httpx.AsyncClient(transport=httpx.MockTransport(handle))


def redirect(target: str) -> Answer:
    return Answer(302, headers={"location": target})


async def get(client: httpx.AsyncClient, url: str, **options: Any) -> int:
    async with follow(client, url, headers={}, token="secret", trusted=ALLOWED, **options) as response:
        return response.status_code


async def test_the_token_does_not_follow_to_another_host() -> None:
    seen: list[httpx.Request] = []
    client = transport(
        {
            "https://hub.example/m": redirect("/renamed"),
            "https://hub.example/renamed": redirect("https://sink.example/m"),
            "https://sink.example/m": Answer(200),
        },
        seen,
    )
    assert await get(client, "https://hub.example/m") == 200
    assert [request.headers.get("authorization") for request in seen] == [
        "Bearer secret",
        "Bearer secret",
        None,
    ]


async def test_staying_gives_the_redirect_itself() -> None:
    client = transport({"https://hub.example/m": redirect("https://cdn.example/m")}, [])
    assert await get(client, "https://hub.example/m", stay=True) == 302


@pytest.mark.parametrize(
    "target",
    ["http://hub.example/m", "file:///etc/passwd", "ftp://hub.example/m", "https://[::1/m"],
)
async def test_redirects_to_odd_places_are_refused(target: str) -> None:
    seen: list[httpx.Request] = []
    client = transport({"https://hub.example/m": redirect(target)}, seen)
    with pytest.raises(DownloadFailed):
        await get(client, "https://hub.example/m")
    assert len(seen) == 1


@pytest.mark.parametrize("target", ["https://hub.example/m", "/m", "", "https://", "//"])
async def test_redirects_in_a_circle_end(target: str) -> None:
    client = transport({"https://hub.example/m": redirect(target)}, [])
    with pytest.raises(DownloadFailed, match="redirects more than"):
        await get(client, "https://hub.example/m")


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[fe80::1]",
        "0.0.0.0",
        "2130706433",
        "localhost",
    ],
)
async def test_addresses_inside_this_network_are_not_gone_to(host: str) -> None:
    seen: list[httpx.Request] = []
    client = transport({"https://hub.example/m": redirect(f"https://{host}/m")}, seen)
    with pytest.raises((DownloadFailed, Offline)):
        await get(client, "https://hub.example/m")
    assert len(seen) == 1, "the sink was never asked"


async def test_a_name_that_resolves_to_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(self: object, host: str, port: object, **options: object) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.168.1.1", 0)),
        ]

    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", resolve)
    with pytest.raises(DownloadFailed, match="inside this network"):
        await forbid_private("https://rebound.example/m", trusted=())
    await forbid_private("https://rebound.example/m", trusted=("rebound.example:443",))


async def test_trust_is_for_one_port() -> None:
    await forbid_private("http://127.0.0.1:8000/m", trusted=("127.0.0.1:8000",))
    with pytest.raises(DownloadFailed):
        await forbid_private("http://127.0.0.1:8001/m", trusted=("127.0.0.1:8000",))


def test_origins() -> None:
    assert origin("https://hub.example/a") == "hub.example:443"
    assert origin("http://HUB.example:8080") == "hub.example:8080"
    for odd in ("hub.example", "file:///x", "http://", "http://a:99999999/"):
        with pytest.raises(DownloadFailed):
            origin(odd)


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (401, {}, Gated),
        (403, {}, Gated),
        (404, {}, NotFound),
        (410, {}, NotFound),
        (429, {"retry-after": "7"}, RateLimited),
        (503, {"retry-after": "7"}, RateLimited),
        (503, {}, DownloadFailed),
        (500, {}, DownloadFailed),
        (302, {}, DownloadFailed),
    ],
)
def test_an_answer_that_is_no_content_is_named(
    status: int, headers: dict[str, str], error: type[LocalLLMError]
) -> None:
    response = Answer(status, headers=headers, request=httpx.Request("GET", "https://hub.example/m"))
    with pytest.raises(error) as caught:
        check_status(response, "m.gguf")
    if isinstance(caught.value, RateLimited):
        assert caught.value.retry_after_s == 7


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        ("999999", 300.0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("", None),
        ("soon", None),
        ("²", None),
    ],
)
def test_how_long_to_wait(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, now=60.0) == seconds


def test_the_range_of_an_answer() -> None:
    assert content_range({"content-range": "bytes 0-9/100"}) == (0, 10, 100)
    assert content_range({"content-range": "bytes 5-5/*"}) == (5, 6, None)
    for odd in (
        "",
        "bytes 9-0/100",
        "bytes 0-100/100",
        "bytes */100",
        "0-9/100",
        "bytes 0-" + "9" * 40 + "/*",
    ):
        with pytest.raises(DownloadFailed):
            content_range({"content-range": odd})


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ConnectError("refused"), Offline),
        (httpx.ConnectError("CERTIFICATE_VERIFY_FAILED: self-signed"), Offline),
        (httpx.ReadTimeout("slow"), DownloadFailed),
        (httpx.RemoteProtocolError("bad"), DownloadFailed),
    ],
)
def test_what_httpx_raises_is_put_into_words(error: Exception, expected: type[LocalLLMError]) -> None:
    with pytest.raises(expected) as caught, network_errors("https://hub.example/m"):
        raise error
    assert "hub.example" in caught.value.message
    if "CERTIFICATE" in str(error):
        assert "SSL_CERT_FILE" in (caught.value.hint or "")


async def test_an_endless_or_compressed_listing_is_cut_off() -> None:
    def handle(request: httpx.Request) -> Answer:
        if request.url.path == "/long":
            return Answer(200, stream=httpx.ByteStream(b"x" * 2_000_000))
        return Answer(200, stream=httpx.ByteStream(b"x"), headers={"content-encoding": "br"})

    client = httpx.AsyncClient(transport=httpx.MockTransport(handle))
    for path in ("long", "zip"):
        with pytest.raises(DownloadFailed):
            await small(client, path)


async def test_a_listing_is_asked_for_again_when_the_host_stumbles() -> None:
    answers = iter(
        [Answer(502), Answer(429, headers={"retry-after": "2"}), Answer(200, stream=httpx.ByteStream(b"ok"))]
    )
    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: next(answers)))
    pauses: list[float] = []
    assert await small(client, "x", pauses) == b"ok"
    assert pauses == [0.5, 2.0]


async def test_a_long_wait_is_not_waited_for() -> None:
    client = transport({"https://hub.example/x": Answer(429, headers={"retry-after": "60"})}, [])
    with pytest.raises(RateLimited):
        await small(client, "x")


async def small(client: httpx.AsyncClient, path: str, pauses: list[float] | None = None) -> bytes:
    async def sleep(seconds: float) -> None:
        (pauses if pauses is not None else []).append(seconds)

    body, _ = await fetch_small(
        client,
        f"https://hub.example/{path}",
        "a list",
        token=None,
        trusted=ALLOWED,
        limit_bytes=1 << 20,
        sleep=sleep,
    )
    return body


def test_certificates_are_always_checked() -> None:
    assert wire.system_trust().verify_mode.name == "CERT_REQUIRED"


@pytest.mark.parametrize(
    "target", ["http://hub.example/m?X-Signature=canary", "file:///m?canary", "https://[::1/m?canary"]
)
async def test_signatures_do_not_get_into_messages(target: str) -> None:
    client = transport({"https://hub.example/m": redirect(target)}, [])
    with pytest.raises(DownloadFailed) as caught:
        await get(client, "https://hub.example/m")
    assert "canary" not in caught.value.message
    with pytest.raises(DownloadFailed) as caught:
        origin("nothing?canary")
    assert "canary" not in caught.value.message


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    path = tmp_path / "certificate.pem"
    key = tmp_path / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + key.read_bytes())
    return path


async def test_a_certificate_that_is_not_trusted_is_named_and_can_be_made_trusted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with LoopbackHub({"m": b"model"}).serving(context) as hub:
        url, trusted = f"https://127.0.0.1:{hub.port}/files/m", (f"127.0.0.1:{hub.port}",)
        with pytest.raises(Offline, match="not trusted here") as caught:
            await body_of(url, trusted)
        assert "SSL_CERT_FILE" in (caught.value.hint or "")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert await body_of(url, trusted) == b"model"


async def test_proxies_of_the_environment_are_used_and_no_proxy_is_heeded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LoopbackHub({"m": b"model"}).serving() as proxy, LoopbackHub({"m": b"direct"}).serving() as direct:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        # a name that only the proxy knows: it is asked, and not our own resolver
        assert await body_of("http://hub.invalid/files/m", ()) == b"model"
        assert proxy.seen[0].path == "http://hub.invalid/files/m"
        assert await body_of(f"{direct.url}/files/m", (f"127.0.0.1:{direct.port}",)) == b"direct"
        assert len(proxy.seen) == 1


async def body_of(url: str, trusted: tuple[str, ...]) -> bytes:
    async with new_client(stall_seconds=5) as client:
        body, _ = await fetch_small(client, url, "m", token=None, trusted=trusted, limit_bytes=1000)
        return body
