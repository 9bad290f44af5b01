"""The service's socket: bound before anything else is done, and a port that is taken explained.

Which program has the port decides what a person should do, so it is asked: our own service (the lock tells), another
localllm, Ollama, or somebody else.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket

from localllm.core.errors import ConfigInvalid, PortInUse
from localllm.service.lock import ServiceLock
from localllm.settings.paths import Paths

_BACKLOG = 512
_ASK_DEADLINE_S = 2.0


def bind(host: str, port: int, paths: Paths) -> socket.socket:
    """A listening socket on ``host`` and ``port`` (0 = a free one); never shared with another program.

    Raises:
        AlreadyRunning: our own service has the port.
        PortInUse: another program has it; the message says which, as far as can be told.
        ConfigInvalid: there is no such address here.
    """
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise ConfigInvalid(
            f"server.host is {host!r}, which is no address of this machine.", hint="Use 127.0.0.1."
        ) from error
    # asyncio turns Nagle's algorithm off only where it knows that the protocol is TCP: without that argument each
    # answer waits 40 ms for the client's delayed acknowledgement
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            # only lets a restart take the port while old connections linger; two listeners stay impossible
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        elif hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        listener.bind(where)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _explained(error, host, port, paths) from error
    return listener


def _explained(error: OSError, host: str, port: int, paths: Paths) -> Exception:
    if error.errno in (errno.EACCES, errno.EPERM):
        return PortInUse(f"Port {port} needs rights that you do not have.", hint="Use a port above 1023.")
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigInvalid(
            f"server.host is {host!r}, which is no address of this machine.", hint="Use 127.0.0.1."
        )
    if error.errno != errno.EADDRINUSE:
        return PortInUse(f"Port {port} cannot be used: {error.strerror}.")
    with ServiceLock(paths):  # raises AlreadyRunning when the program on the port is our own service
        pass
    owner, hint = _who_has(host, port)
    return PortInUse(
        f"Port {port} is in use by {owner}.",
        hint=hint or f"Stop it, or use another port: localllm config set server.port {port + 1}",
        details={"port": port, "owner": owner},
    )


def _who_has(host: str, port: int) -> tuple[str, str | None]:
    """The program on the port, by what it answers, and a hint of its own."""
    identity = _ask(host, port, "/localllm/identity")
    try:
        found = json.loads(identity)
    except ValueError:
        found = None
    if isinstance(found, dict) and found.get("service") == "localllm":
        return (
            f"another localllm service (pid {found.get('pid')}, of another user or another LOCALLLM_HOME)",
            None,
        )
    if b"Ollama is running" in _ask(host, port, "/"):
        return "Ollama", f"Ollama can stay: use another port with localllm config set server.port {port + 1}"
    return "another program", None


def _ask(host: str, port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection(host, port, timeout=_ASK_DEADLINE_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().read(4096)
    except (OSError, http.client.HTTPException):
        return b""
    finally:
        connection.close()
