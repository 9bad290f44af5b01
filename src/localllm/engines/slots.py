"""Places in the engine, given out first come first served: what is sent to the server never waits inside it.

So a request that waits costs the server nothing, leaves at once when its client does, and the time without a token
that a watchdog measures is the engine's own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from localllm.core.errors import EngineError


class Slots:
    def __init__(self, count: int) -> None:
        self._free = count
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.running = 0

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    @asynccontextmanager
    async def take(self, count: int) -> AsyncIterator[None]:
        """Hold ``count`` places, at most all there are."""
        await self._acquire(count)
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self._release(count)

    def fail(self, error: EngineError) -> None:
        """The engine is gone: nobody waits any longer."""
        while self._waiters:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error)

    async def _acquire(self, count: int) -> None:
        if not self._waiters and self._free >= count:
            self._free -= count
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (count, waiter)
        self._waiters.append(entry)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release(count)  # it was given the places in the moment it left
            elif entry in self._waiters:
                self._waiters.remove(entry)
                self._hand_out()  # it may have stood before smaller ones
            raise

    def _release(self, count: int) -> None:
        self._free += count
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiters and self._free >= self._waiters[0][0]:
            count, waiter = self._waiters.popleft()
            if not waiter.done():
                self._free -= count
                waiter.set_result(None)
