from __future__ import annotations

import socket

import pytest
from msgspec.structs import replace

from localllm.client import connect as connecting
from localllm.client.connect import address, base_url, connect, find
from localllm.core.control import Identity
from localllm.core.errors import NotRunning, PortInUse, ServiceError, Unauthorized, VersionMismatch
from localllm.settings.identity import read_admin_key, read_identity, write_identity
from localllm.settings.paths import Paths
from tests.unit.client.conftest import Live


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("edge-01", "http://edge-01:11500"),
        ("edge-01:8080", "http://edge-01:8080"),
        ("10.0.0.7:80", "http://10.0.0.7:80"),
        ("[::1]:9", "http://[::1]:9"),
        ("https://edge.example/", "https://edge.example:443"),
        ("http://edge.example:5", "http://edge.example:5"),
    ],
)
def test_a_host_becomes_a_url(host: str, url: str) -> None:
    assert base_url(host) == url


@pytest.mark.parametrize("host", ["edge:port", "ftp://edge", ":8080", "edge:99999"])
def test_what_is_no_host_is_said(host: str) -> None:
    with pytest.raises(ServiceError, match="no host and port"):
        base_url(host)


@pytest.mark.parametrize(
    ("bound", "asked"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("127.0.0.1", "127.0.0.1")]
)
def test_a_service_bound_to_everything_is_asked_on_loopback(bound: str, asked: str) -> None:
    identity = Identity(version="1", nonce="n", pid=1, host=bound, port=5, started_at=0.0)
    assert address(identity) == f"http://{asked}:5"


async def test_without_a_service_it_is_not_running(paths: Paths) -> None:
    with pytest.raises(NotRunning):
        await connect(paths, start=False)


async def test_another_program_on_the_port_is_not_ours(live: Live) -> None:
    ours = read_identity(live.paths)
    assert ours is not None
    write_identity(live.paths, replace(ours, nonce="another"))
    assert await find(live.paths) is None
    write_identity(live.paths, ours)
    assert await find(live.paths) == ours


async def test_another_version_is_refused_with_the_way_out(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "__version__", "99.0")
    with pytest.raises(VersionMismatch) as caught:
        await connect(live.paths, start=False)
    assert "restart" in (caught.value.hint or "")


async def test_a_remote_service_needs_its_key(live: Live) -> None:
    host = live.client.base_url.removeprefix("http://")
    with pytest.raises(Unauthorized):
        await connect(live.paths, host)
    async with await connect(live.paths, host, read_admin_key(live.paths)) as client:
        assert (await client.state()).identity == await live.client.identity()


async def test_a_service_that_dies_at_once_is_told_with_its_last_words(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.config_file.parent.mkdir(parents=True)
    paths.config_file.write_text("[server]\nprot = 1\n")
    with pytest.raises(NotRunning) as caught:
        await connect(paths)
    assert "server.port" in (caught.value.hint or "")


async def test_a_port_in_use_has_its_own_error(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("LOCALLLM_SERVER_PORT", str(other.getsockname()[1]))
        with pytest.raises(PortInUse) as caught:
            await connect(paths)
    assert "in use" in caught.value.message
    assert "server.port" in (caught.value.hint or "")
