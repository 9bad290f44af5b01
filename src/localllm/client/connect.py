"""Finding the service, or starting it: a client never has to know whether it runs already.

Ours is told from any other program on the port by its nonce: the state folder has it, and so must the answer. A
service that is started here belongs to no terminal: own session, its output in a file, and it stays.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from localllm._version import __version__
from localllm.client.client import Client
from localllm.core.control import Identity
from localllm.core.errors import (
    LocalLLMError,
    NotRunning,
    PortInUse,
    ServiceError,
    Unauthorized,
    VersionMismatch,
)
from localllm.settings.identity import read_admin_key, read_identity
from localllm.settings.paths import Paths
from localllm.settings.private import secure_folder

DEFAULT_PORT = 11500
START_DEADLINE_S = 30.0
_PORT_IN_USE = 6
"""The exit code of ``localllm serve`` for it; they are documented and stay."""

_ANSWER_DEADLINE_S = 5.0
_ASK_EVERY_S = 0.05
_KEPT_OUTPUT_CHARS = 2000


async def connect(
    paths: Paths, host: str | None = None, key: str | None = None, *, start: bool = True
) -> Client:
    """A client of the service: the one at ``host`` (``name``, ``name:port`` or a URL), else this user's own.

    ``start`` brings up a local one that is not running.

    Raises:
        NotRunning: nothing answers, and it was not to be started or could not be.
        Unauthorized: a remote service needs a key and none (or a wrong one) was given.
        VersionMismatch: it is of another version than this client.
    """
    if host:
        return await _remote(base_url(host), key)
    client = await _running(paths)
    if client is None and start:
        client = await start_service(paths)
    if client is None:
        raise NotRunning("The localllm service is not running.", hint="Start it with: localllm start")
    return client


async def find(paths: Paths) -> Identity | None:
    """The service that runs for this user, proven by its nonce; None when there is none."""
    noted = read_identity(paths)
    if noted is None:
        return None
    async with Client(address(noted)) as client:
        try:
            async with asyncio.timeout(_ANSWER_DEADLINE_S):
                answered = await client.identity()
        except (LocalLLMError, TimeoutError):
            return None
    return answered if answered.nonce == noted.nonce else None


async def start_service(paths: Paths) -> Client:
    """Start the service detached and wait until it answers.

    Raises:
        PortInUse: another program has its port.
        NotRunning: it ended otherwise, or did not answer in time; the hint has its last words.
    """
    output = secure_folder(paths.log_dir) / "service.out"
    process = _spawn(output)
    until = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < until:
        client = await _running(paths)
        if client is not None:
            process.returncode = process.returncode or 0  # it outlives us: nobody is to wait for it
            return client
        if process.poll() is not None:
            # two starts at once: the other one has won, and it is the one to use
            client = await _running(paths) or await _wait_for_other(paths, until, process.returncode)
            if client is not None:
                return client
            words = _last_words(output)
            if process.returncode == _PORT_IN_USE and words is not None:
                message, _, hint = words.removeprefix("Error: ").partition("\n")
                raise PortInUse(message, hint=hint or None)
            raise NotRunning("The service ended while it started.", hint=words)
        await asyncio.sleep(_ASK_EVERY_S)
    raise NotRunning(
        f"The service did not answer within {START_DEADLINE_S:.0f} s.", hint=f"See {paths.service_log}"
    )


def address(identity: Identity) -> str:
    """The URL to reach a local service; one bound to every address is asked on loopback."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(identity.host, identity.host)
    return f"http://[{host}]:{identity.port}" if ":" in host else f"http://{host}:{identity.port}"


def base_url(host: str) -> str:
    """``edge``, ``edge:11500``, ``[::1]:11500`` or a URL, as a URL without a path.

    Raises:
        ServiceError: it is none of these.
    """
    text = host if "://" in host else f"http://{host}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ServiceError(f"{host!r} is no host and port.", hint="Like edge-01:11500") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ServiceError(f"{host!r} is no host and port.", hint="Like edge-01:11500")
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if port is None:
        port = 443 if parts.scheme == "https" else DEFAULT_PORT
    return f"{parts.scheme}://{name}:{port}"


async def _remote(url: str, key: str | None) -> Client:
    client = Client(url, key)
    try:
        identity = await client.identity()
        _same_version(identity)
        if key is None:
            raise Unauthorized(
                f"The service at {url} needs its admin key.",
                hint="Give it with --key or LOCALLLM_KEY; it lies in admin.key in that machine's state folder.",
            )
    except BaseException:
        await client.aclose()
        raise
    return client


async def _running(paths: Paths) -> Client | None:
    identity = await find(paths)
    if identity is None:
        return None
    _same_version(identity)
    return Client(address(identity), read_admin_key(paths))


def _same_version(identity: Identity) -> None:
    if identity.version != __version__:
        raise VersionMismatch(
            f"The service is localllm {identity.version}, this is {__version__}.",
            hint="Bring it up to date with: localllm restart",
            details={"service": identity.version, "client": __version__},
        )


def _spawn(output: Path) -> subprocess.Popen[bytes]:
    """``localllm serve`` without a terminal: in its own session (POSIX) or detached (Windows)."""
    command = [sys.executable, "-m", "localllm", "serve"]
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(descriptor, "wb") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=Path.home() if Path.home().is_dir() else None,
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "DETACHED_PROCESS", 0)
            | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            close_fds=True,
        )


async def _wait_for_other(paths: Paths, until: float, returncode: int | None) -> Client | None:
    """Exit code 3 means that another service has the lock: it may be just as young."""
    while returncode == 3 and time.monotonic() < until:
        client = await _running(paths)
        if client is not None:
            return client
        await asyncio.sleep(_ASK_EVERY_S)
    return None


def _last_words(output: Path) -> str | None:
    try:
        said = output.read_text("utf-8", "replace").strip()
    except OSError:
        return None
    return said[-_KEPT_OUTPUT_CHARS:] or None
