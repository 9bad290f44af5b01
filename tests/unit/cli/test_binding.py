from __future__ import annotations

import asyncio
import socket

import pytest

from localllm.cli.binding import bind
from localllm.cli.serve import refuse_open_port
from localllm.core.config import ServerSettings
from localllm.core.errors import AlreadyRunning, ConfigInvalid, PortInUse
from localllm.service.lock import ServiceLock
from localllm.settings.paths import Paths


def test_a_free_port_is_taken_and_listens(paths: Paths) -> None:
    with bind("127.0.0.1", 0, paths) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass
        with pytest.raises(PortInUse, match="another program") as caught:
            bind("127.0.0.1", port, paths)
        assert caught.value.details["port"] == port


async def test_answers_are_not_held_back_for_acknowledgements(paths: Paths) -> None:
    """Without TCP_NODELAY on what is accepted, each answer would wait 40 ms."""
    seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        seen.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = bind("127.0.0.1", 0, paths)
    async with await asyncio.start_server(accepted, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
        assert await asyncio.wait_for(seen, 5) == 1
        writer.close()


def test_a_port_of_our_own_running_service_is_already_running(paths: Paths) -> None:
    with ServiceLock(paths), bind("127.0.0.1", 0, paths) as listener, pytest.raises(AlreadyRunning):
        bind("127.0.0.1", listener.getsockname()[1], paths)


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_a_mistake_in_the_settings(host: str, paths: Paths) -> None:
    with pytest.raises(ConfigInvalid, match="no address of this machine"):
        bind(host, 0, paths)


def test_only_loopback_goes_without_keys() -> None:
    refuse_open_port(ServerSettings())
    refuse_open_port(ServerSettings(host="::1"))
    refuse_open_port(ServerSettings(host="0.0.0.0", api_keys=("a-key",)))
    for host in ("0.0.0.0", "::", "192.168.1.4", "edge-01"):
        with pytest.raises(ConfigInvalid, match="api_keys"):
            refuse_open_port(ServerSettings(host=host))
