"""Who may talk to the port through a browser: Host and Origin are checked before any work is done.

A page anywhere on the web can make its visitor's browser send requests to 127.0.0.1, and with a DNS name that it
re-points there (DNS rebinding) even read the answers. So the Host must be a name of this machine, and an Origin must be
this port itself or one that the configuration names exactly.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localllm.api.boundary import header
from localllm.core.errors import Forbidden

_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_EXPOSED = (
    "x-request-id, x-localllm-context, x-localllm-ignored, x-localllm-cache, x-localllm-served-by, retry-after, retry-after-ms,"
    " x-should-retry, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests,"
    " x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
_PREFLIGHT_SECONDS = "600"


class OriginGate:
    """Refuses foreign Hosts and Origins, and speaks CORS with those that the configuration lists."""

    def __init__(
        self, app: ASGIApp, *, bound_host: str, allowed_hosts: Iterable[str] = (), origins: Iterable[str] = ()
    ) -> None:
        self._app = app
        self._bound_host = bound_host
        self._allowed_hosts = {name.lower() for name in allowed_hosts} | own_names()
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = header(scope, "host") or ""
        if not self.is_our_host(host_name(host)):
            raise Forbidden(
                f"This port does not answer to the host name {host[:128]!r}.",
                hint="Add it to server.allowed_hosts if it is a name of this machine.",
            )
        origin = header(scope, "origin")
        if origin is None:
            await self._app(scope, receive, send)
            return
        if origin not in self._origins:
            if origin != f"{scope.get('scheme', 'http')}://{host}":
                raise Forbidden(
                    f"Web pages from {origin[:128]!r} may not use this port.",
                    hint="Add the exact origin to server.cors_origins to allow it.",
                )
            await self._app(scope, receive, send)
            return
        if scope["method"] == "OPTIONS" and header(scope, "access-control-request-method"):
            await self._preflight(scope, origin)(scope, receive, send)
            return
        await self._app(scope, receive, _allowing(send, origin))

    def is_our_host(self, name: str) -> bool:
        """Whether ``name`` (of a Host header, without its port) is this machine for certain."""
        if name == "localhost" or name.endswith(".localhost") or name in self._allowed_hosts:
            return True
        if name == self._bound_host.lower():
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # an address cannot be re-pointed by DNS; but a port bound to loopback is only reached by loopback
        return address.is_loopback or not is_loopback(self._bound_host)

    def _preflight(self, scope: Scope, origin: str) -> Response:
        headers = {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": _METHODS,
            "access-control-max-age": _PREFLIGHT_SECONDS,
            "vary": "origin",
        }
        asked = header(scope, "access-control-request-headers")
        if asked:
            headers["access-control-allow-headers"] = asked
        if header(scope, "access-control-request-private-network") == "true":
            headers["access-control-allow-private-network"] = "true"
        return Response(status_code=204, headers=headers)


def own_names() -> set[str]:
    """What this machine calls itself, as it is, short, and as mDNS announces it: no stranger can point these here."""
    full = socket.gethostname().lower()
    short = full.partition(".")[0]
    return {full, short, f"{short}.local"} - {""}


def host_name(host: str) -> str:
    """The name in a Host header, without its port, lower case; brackets of an IPv6 address dropped."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _allowing(send: Send, origin: str) -> Send:
    async def send_allowing(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = _EXPOSED
            headers.add_vary_header("origin")
        await send(message)

    return send_allowing
