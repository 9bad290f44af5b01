"""Who may use the port: client keys and named keys for ``/v1``, the admin key for everything.

Keys travel in headers only, never in a URL, and are compared in constant time. What needs no key is listed here, in
one place: the health probe (it says nothing but "alive") and the identity of the service (which proves by its nonce
that it is ours, and is asked before a client knows which key to send).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from localllm.api.boundary import header, is_control
from localllm.core.errors import Unauthorized
from localllm.service.keys import Keys

OPEN_PATHS = frozenset({"/health", "/v1/health", "/localllm/identity"})


class KeyGate:
    """Without any keys the port is open to its own machine, except for control. ``require_key`` closes it anyway.

    A request that came with a named key has it as ``state.key`` (a ``KeyInfo``); others have None there.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_keys: Iterable[str],
        admin_key: str,
        named: Keys,
        require_key: bool = False,
    ) -> None:
        self._app = app
        self._admin_key = admin_key
        self._client_keys = tuple(api_keys)
        self._named = named
        self._require_key = require_key or bool(self._client_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._check(scope)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        path = scope["path"]
        control = is_control(path)
        sent = _sent_key(scope)
        named = None if control or sent is None else self._named.find(sent)
        scope["state"]["key"] = named
        required = control or self._require_key or self._named.required
        if path in OPEN_PATHS or not required or named is not None:
            return
        accepted = (self._admin_key,) if control else (self._admin_key, *self._client_keys)
        if sent is None or not _matches(sent, accepted):
            which = (
                "the admin key (it lies in the state folder)" if control else "a key that was given to you"
            )
            raise Unauthorized(
                "The API key is not valid." if sent else "An API key is needed.",
                hint=f"Send {which} as 'Authorization: Bearer KEY'.",
            )


def _sent_key(scope: Scope) -> str | None:
    scheme, _, key = (header(scope, "authorization") or "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return header(scope, "x-api-key") or None


def _matches(sent: str, accepted: Iterable[str]) -> bool:
    candidate = sent.encode("utf-8", "surrogateescape")
    matched = False
    for key in accepted:  # to the end: the time must not tell which key it was
        matched |= bool(key) and hmac.compare_digest(candidate, key.encode())
    return matched
