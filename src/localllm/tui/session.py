"""What every screen is handed: the service behind the sanitising boundary, the clock, and how calm to be.

`Session.ask` is the one funnel for calls to the service: it cleans what comes back and reports what goes wrong.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from localllm.core.control import ReplyEvent, State, StateDelta
from localllm.core.errors import LocalLLMError, NotRunning
from localllm.tui.backend import Backend
from localllm.tui.sanitise import clean

T = TypeVar("T")


class Connect(Protocol):
    """Finds the service; ``start``: brings up a local one that is not running. Raises LocalLLMError."""

    async def __call__(self, *, start: bool) -> Backend: ...


@dataclass
class Session:
    """``report`` shows an error to the person. ``clock`` is Unix time, for ages; tests freeze it."""

    connect: Connect
    report: Callable[[LocalLLMError], None]
    clock: Callable[[], float] = time.time
    low_bandwidth: bool = False
    ascii_plots: bool = False
    # a service that is missing when the app opens is started; one that was stopped meanwhile is not, unless asked
    start_service: bool = True
    _backend: Backend | None = field(default=None, init=False)

    @property
    def redraw_seconds(self) -> float:
        """The shortest time between two redraws of something that streams."""
        return 0.25 if self.low_bandwidth else 0.1

    async def ask(self, call: Callable[[Backend], Awaitable[T]]) -> T | None:
        """The cleaned answer of a call, or None after its error has been shown."""
        try:
            return clean(await call(self._connected()))
        except LocalLLMError as error:
            self.report(clean_error(error))
            return None

    async def events(self) -> AsyncIterator[State | StateDelta]:
        """Connect, and follow the service until it is gone; then the connection is gone too."""
        start, self.start_service = self.start_service, False
        self._backend = await self.connect(start=start)
        try:
            async for event in self._backend.events():
                yield clean(event)
        finally:
            await self.close()

    async def reply(self, chat_id: str, message_id: str) -> AsyncIterator[ReplyEvent]:
        """The growth of one reply."""
        async for event in self._connected().reply_stream(chat_id, message_id):
            yield clean(event)

    async def close(self) -> None:
        """Let go of the connection; the service goes on."""
        if self._backend is not None:
            backend, self._backend = self._backend, None
            await backend.aclose()

    def _connected(self) -> Backend:
        if self._backend is None:
            raise NotRunning("There is no line to the service.", hint="The app goes on trying to reach it.")
        return self._backend


def clean_error(error: LocalLLMError) -> LocalLLMError:
    """The same error with its words cleaned: a message may quote a file name or a model's metadata."""
    error.message = clean(error.message)
    error.hint = clean(error.hint)
    return error
