"""One server-sent event stream: when it begins, what keeps it alive, and what ends it early.

The status line is held back until there is something to say, so that a request which fails before its first token
gets a real status. A stream that has been silent too long sends a comment frame, which proxies count as life. A reader
that takes nothing for too long loses its stream: what waits for it is bounded by the transport's buffer, since
nothing more is asked of the engine until the last frame has been taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from starlette.types import Send

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
EVENTS = "text/event-stream; charset=utf-8"
LINES = "application/x-ndjson"
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_FINEST_CHECK_S = 0.05


class SlowReader(Exception):
    """The client has taken nothing for too long; its stream is given up."""


class EventStream:
    """Frames go through ``write``, or ``hold`` if they may wait for the next; ``keep_alive`` runs beside and watches.

    ``lines``: JSON lines instead of events, which have no form for a comment, so nothing is sent in silence.
    ``headers`` may be added to until the stream is ``opened``.
    """

    def __init__(
        self, send: Send, headers: Mapping[str, str], *, ping_s: float, stall_s: float, lines: bool = False
    ) -> None:
        self.headers = {"content-type": LINES if lines else EVENTS, **headers}
        self.opened = False
        self._send = send
        self._ping_s = ping_s
        self._stall_s = stall_s
        self._lines = lines
        self._held = b""
        self._last_sent = time.monotonic()
        self._sending_since: float | None = None

    async def open(self) -> None:
        """Send the status line and headers, once."""
        if self.opened:
            return
        self.opened = True
        extra = [(name.encode(), value.encode("latin-1", "replace")) for name, value in self.headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, *extra]})

    def hold(self, frame: bytes) -> None:
        """Keep a frame that says nothing by itself (a role, an ending) for the next write: one less system call."""
        self._held += frame

    async def write(self, frame: bytes) -> None:
        """Send whole frames; returns when the transport has room for more."""
        if not self.opened:
            await self.open()
        if self._held:
            frame, self._held = self._held + frame, b""
        self._sending_since = self._last_sent = time.monotonic()
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})
        self._sending_since = None

    async def close(self, last: bytes = b"") -> None:
        """Send what is held and these last frames, and end the response."""
        if not self.opened:
            await self.open()
        self._sending_since = time.monotonic()
        last, self._held = self._held + last, b""
        await self._send({"type": "http.response.body", "body": last, "more_body": False})
        self._sending_since = None

    async def keep_alive(self) -> None:
        """Ping when silent, until cancelled.

        Raises:
            SlowReader: a frame has waited ``stall_s`` seconds for the client to take it.
        """
        step = max(_FINEST_CHECK_S, min(self._ping_s / 4, self._stall_s / 4, 1.0))
        while True:
            await asyncio.sleep(step)
            now = time.monotonic()
            if self._sending_since is not None:
                if now - self._sending_since >= self._stall_s:
                    raise SlowReader
            elif not self._lines and now - self._last_sent >= self._ping_s - step:
                await self.write(PING)
