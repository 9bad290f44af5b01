"""``localllm serve | start | stop | restart | status``: the service's life, from the command line."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from localllm.cli.output import Result, emit, pairs
from localllm.cli.session import Remote, json_option, remote_options

if TYPE_CHECKING:
    from localllm.client.client import Client
    from localllm.core.control import Identity, State
    from localllm.settings.paths import Paths

_LOOK_EVERY_S = 0.05
_AFTER_DRAIN_S = 20.0
_CLOCK_SLACK_S = 1.5

drain_option = click.option(
    "--drain",
    "drain_s",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    help="How long running requests may take to end (default: 30).",
)


class ServiceStatus(Struct, frozen=True, kw_only=True):
    """What ``status --json`` prints. ``silent_pid``: a service is there, but does not answer."""

    running: bool
    silent_pid: int | None = None
    url: str | None = None
    identity: Identity | None = None
    models_loaded: tuple[str, ...] = ()
    requests_running: int = 0
    requests_waiting: int = 0
    notices: tuple[str, ...] = ()


@click.command()
@click.option("--host", metavar="ADDRESS", help="Address to bind to (default: server.host).")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port; 0 = a free one (default: server.port).",
)
def serve(host: str | None, port: int | None) -> int:
    """Run the service in this terminal, until Ctrl-C. To have it in the background: localllm start"""
    from localllm.cli.serve import serve_until_stopped

    return serve_until_stopped(host=host, port=port)


@click.command()
@json_option
def start(as_json: bool) -> None:
    """Start the service in the background. It outlives this terminal; when it runs already, nothing changes."""

    async def work() -> tuple[ServiceStatus, bool]:
        from localllm.client.connect import connect, find
        from localllm.settings.paths import resolve_paths

        paths = resolve_paths()
        ran = await find(paths) is not None
        async with await connect(paths) as client:
            return await _status_of(client), ran

    status, ran = asyncio.run(work())
    word = "runs already" if ran else "started"
    emit(Result("status", status, lambda: iter([f"localllm {word}: {status.url}"])), as_json=as_json)


@click.command()
@drain_option
@remote_options
def stop(drain_s: float | None, remote: Remote) -> None:
    """Stop the service. Running requests may end first; what is unfinished after that is cut off, and kept in chats."""
    asyncio.run(_stop(remote, drain_s))
    click.echo("localllm stopped.")


@click.command()
@drain_option
@remote_options
def restart(drain_s: float | None, remote: Remote) -> None:
    """Stop the service and start it again, so that new settings (or a new version) are in force."""

    async def work() -> str:
        from localllm.client.connect import connect
        from localllm.core.errors import NotRunning
        from localllm.settings.paths import resolve_paths

        if remote.host:
            return await _restart_remote(remote, drain_s)
        try:
            await _stop(remote, drain_s)
        except NotRunning:
            pass
        async with await connect(resolve_paths()) as client:
            return client.base_url

    click.echo(f"localllm restarted: {asyncio.run(work())}")


@click.command()
@json_option
@remote_options
def status(as_json: bool, remote: Remote) -> int:
    """Whether the service is up, where, and what it is doing. The exit code is 5 when it is not running."""
    found = asyncio.run(_status(remote))
    emit(Result("status", found, lambda: _lines(found)), as_json=as_json)
    return 0 if found.running else 5


async def _status(remote: Remote) -> ServiceStatus:
    from localllm.client.client import Client
    from localllm.client.connect import address, connect, find
    from localllm.settings.identity import read_admin_key
    from localllm.settings.paths import resolve_paths

    paths = resolve_paths()
    if remote.host:
        async with await connect(paths, remote.host, remote.key) as client:
            return await _status_of(client)
    identity = await find(paths)
    if identity is None:
        return ServiceStatus(running=False, silent_pid=_silent_pid(paths))
    # not by way of `connect`: the status of a service of another version is worth knowing, too
    async with Client(address(identity), read_admin_key(paths)) as client:
        return await _status_of(client)


async def _status_of(client: Client) -> ServiceStatus:
    state: State = await client.state()
    return ServiceStatus(
        running=True,
        url=client.base_url,
        identity=state.identity,
        models_loaded=tuple(instance.model for instance in state.instances),
        requests_running=state.live.running,
        requests_waiting=state.live.waiting,
        notices=tuple(notice.text for notice in state.notices),
    )


def _lines(found: ServiceStatus) -> Iterator[str]:
    from localllm.core.units import format_duration

    identity = found.identity
    if found.silent_pid is not None:
        yield f"localllm (pid {found.silent_pid}) does not answer. End it with: localllm stop"
        return
    if not found.running or identity is None:
        yield "localllm is not running. Start it with: localllm start"
        return
    yield from pairs(
        [
            ("service", f"localllm {identity.version}, pid {identity.pid}"),
            ("address", found.url),
            ("OpenAI base URL", f"{found.url}/v1"),
            ("up", format_duration(max(0.0, time.time() - identity.started_at))),
            ("loaded", ", ".join(found.models_loaded) or "no model"),
            ("requests", f"{found.requests_running} running, {found.requests_waiting} waiting"),
        ]
    )
    for notice in found.notices:
        yield f"! {notice}"


async def _stop(remote: Remote, drain_s: float | None) -> None:
    """Ask the service to stop and wait until it has; of a local one, until it has let go of its lock."""
    from localllm.client.client import Client
    from localllm.client.connect import address, connect, find
    from localllm.core.control import ShutdownRequest
    from localllm.core.errors import NotRunning
    from localllm.settings.identity import read_admin_key
    from localllm.settings.paths import resolve_paths

    paths = resolve_paths()
    request = ShutdownRequest() if drain_s is None else ShutdownRequest(drain_seconds=drain_s)
    if remote.host:
        async with await connect(paths, remote.host, remote.key) as client:
            await client.shutdown(request)
            return
    identity = await find(paths)
    if identity is None and (pid := _silent_pid(paths)) is not None:
        os.kill(pid, signal.SIGTERM)
        await _wait_until_gone(paths, pid, request.drain_seconds + _AFTER_DRAIN_S)
        return
    if identity is None:
        raise NotRunning("The localllm service is not running.", hint="Start it with: localllm start")
    async with Client(address(identity), read_admin_key(paths)) as client:
        await client.shutdown(request)
    await _wait_until_gone(paths, identity.pid, request.drain_seconds + _AFTER_DRAIN_S)


async def _wait_until_gone(paths: Paths, pid: int, deadline_s: float) -> None:
    from localllm.core.errors import ServiceError

    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        if not _lock_is_held(paths):
            return
        await asyncio.sleep(_LOOK_EVERY_S)
    raise ServiceError(f"The service (pid {pid}) does not end.", hint=f"End it with: kill -9 {pid}")


def _silent_pid(paths: Paths) -> int | None:
    """The process that holds the service's lock, for when it does not answer; None when nobody holds it."""
    import psutil

    from localllm.settings.identity import read_identity

    noted = read_identity(paths)
    if noted is None or not _lock_is_held(paths):
        return None
    try:
        created = psutil.Process(noted.pid).create_time()
    except psutil.Error:
        return None
    # a process that is younger than the note only has the number of the one that wrote it
    return noted.pid if created <= noted.started_at + _CLOCK_SLACK_S else None


def _lock_is_held(paths: Paths) -> bool:
    from localllm.core.errors import AlreadyRunning
    from localllm.service.lock import ServiceLock

    try:
        with ServiceLock(paths):
            return False
    except AlreadyRunning:
        return True


async def _restart_remote(remote: Remote, drain_s: float | None) -> str:
    """The service starts itself again in the same process; wait for another nonce to answer."""
    from localllm.client.connect import connect
    from localllm.core.control import ShutdownRequest
    from localllm.core.errors import LocalLLMError, ServiceError
    from localllm.settings.paths import resolve_paths

    drain = 30.0 if drain_s is None else drain_s
    async with await connect(resolve_paths(), remote.host, remote.key) as client:
        before = await client.shutdown(ShutdownRequest(drain_seconds=drain, restart=True))
        until = time.monotonic() + drain + _AFTER_DRAIN_S
        while time.monotonic() < until:
            await asyncio.sleep(0.25)
            try:
                if (await client.identity()).nonce != before.nonce:
                    return client.base_url
            except LocalLLMError:
                continue  # between the two
    raise ServiceError("The service did not come back.", hint="Look on that machine: localllm logs")
