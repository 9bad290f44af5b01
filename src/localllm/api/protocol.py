"""The HTTP/1.1 protocol of the port: uvicorn's, with a deadline for heads, errors in the port's form, and one write less.

An ASGI application sees a request only when its head is complete. So what never completes (a client that sends a byte
a minute, or connects and says nothing) and what is no HTTP can only be dealt with here, one layer below.
"""

from __future__ import annotations

import asyncio
from typing import cast

import h11
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from localllm.api.errors import error_response
from localllm.core.errors import BadRequest

HEAD_S = 30.0


class PortProtocol(H11Protocol):
    """Closes a connection whose request head has not arrived ``HEAD_S`` seconds after it could have begun."""

    _head_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", _HeadWithBody(transport, self.loop))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._reads_head():
            self._expect_head()
        else:
            self._head_came()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets the port's error body all the same."""
        answer: Response = error_response(BadRequest("This is not a valid HTTP request."))
        headers = [*answer.raw_headers, (b"connection", b"close")]
        reply = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (reply, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _reads_head(self) -> bool:
        """Whether bytes have come that are the beginning of a head and not yet the whole of it."""
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    def _expect_head(self) -> None:
        if self._head_deadline is None:
            self._head_deadline = self.loop.call_later(HEAD_S, self._give_up)

    def _head_came(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _give_up(self) -> None:
        self._head_deadline = None
        if not self.transport.is_closing():
            self.transport.close()


class _HeadWithBody:
    """A transport that sends a response's head together with the first of its body, which follows at once.

    A system call is most of what a short answer costs. Only what uvicorn's HTTP protocol calls is here.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        if self._head:
            self._transport.write(self._head + data)
            self._head = b""
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def _flush(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""
