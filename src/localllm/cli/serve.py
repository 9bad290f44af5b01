"""``localllm serve``: the one place that puts the service, its HTTP application and the web server together.

The order is the point: settings, then the port, then the log, then the parts, then requests; and back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import uvicorn

from localllm.api.app import build_app
from localllm.api.errors import status_of
from localllm.api.origins import is_loopback
from localllm.api.protocol import PortProtocol
from localllm.cli.binding import bind
from localllm.cli.diagnostics import say
from localllm.core.config import ServerSettings
from localllm.core.errors import ConfigInvalid
from localllm.engines.base import Engine
from localllm.service.keys import Keys
from localllm.service.logs import logging_to
from localllm.service.planning import Planning
from localllm.service.runtime import open_runtime
from localllm.service.shutdown import Shutdown
from localllm.settings.load import LoadedSettings, load_settings
from localllm.settings.paths import Paths, resolve_paths

_LAST_BYTES_S = 5
_KEEP_ALIVE_S = 75


def serve_until_stopped(*, host: str | None = None, port: int | None = None) -> int:
    """Run the service in this process until it is told to stop; its exit code.

    Raises:
        ConfigError: settings that cannot be used, or an open address without keys.
        AlreadyRunning, PortInUse: see ``binding``.
    """
    paths = resolve_paths()
    loaded = load_settings(paths, overrides={"server.host": host, "server.port": port})
    server = loaded.settings.server
    refuse_open_port(server, named_keys=Keys(paths.keys_file).required)
    listener = bind(server.host, server.port, paths)
    with listener, logging_to(paths.service_log, loaded.settings.log.level):
        restart = asyncio.run(serve_on(listener, paths, loaded))
    if restart:
        os.execv(sys.executable, [sys.executable, "-m", "localllm", *sys.argv[1:]])
    return 0


def refuse_open_port(server: ServerSettings, *, named_keys: bool = False) -> None:
    """An address that others can reach needs keys, since whoever reaches it may use the machine."""
    if not is_loopback(server.host) and not server.api_keys and not named_keys:
        raise ConfigInvalid(
            f"server.host is {server.host!r}, which other machines can reach, and server.api_keys is empty.",
            hint="Set a key first: localllm config set server.api_keys KEY (or: localllm keys create NAME, or bind to 127.0.0.1).",
        )


async def serve_on(
    listener: socket.socket,
    paths: Paths,
    loaded: LoadedSettings,
    *,
    engines: Mapping[str, Engine] | None = None,
    planning: Planning | None = None,
) -> bool:
    """Serve on ``listener`` until told to stop; returns whether to start again. Tests bring their own engines."""
    host, port = loaded.settings.server.host, listener.getsockname()[1]
    async with open_runtime(
        paths, loaded, host=host, port=port, engines=engines, planning=planning, status_of=status_of
    ) as runtime:
        web = _Web(
            uvicorn.Config(
                build_app(runtime),
                http=PortProtocol,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_LAST_BYTES_S,
            )
        )
        _heed_signals(runtime.shutdown)
        if sys.stderr.isatty():
            say(f"localllm listens on http://{host}:{port} (OpenAI clients: /v1). Ctrl-C stops it.")
        async with asyncio.TaskGroup() as group:
            group.create_task(web.serve(sockets=[listener]), name="web server")
            await runtime.shutdown.requested.wait()
            await runtime.drain()
            web.should_exit = True
        return runtime.shutdown.restart


class _Web(uvicorn.Server):
    """uvicorn without its signal handlers: a signal means draining, which it knows nothing of."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _heed_signals(shutdown: Shutdown) -> None:
    """TERM and INT stop in order (a second one at once); a terminal that goes away stops nothing."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, shutdown.request)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(shutdown.request))
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
