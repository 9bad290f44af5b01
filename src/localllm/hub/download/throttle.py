"""A limit on how fast all downloads together may be, so that a pull leaves room for other things on the line."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_SHORTEST_WAIT_S = 0.02


class Throttle:
    """``bytes_per_second`` None = no limit; it may change at any time."""

    def __init__(
        self,
        bytes_per_second: float | None = None,
        *,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = 0.0

    async def spend(self, count: int) -> None:
        """Wait until ``count`` more bytes are within the limit."""
        if not self.bytes_per_second:
            return
        now = self._clock() if self._clock else asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + count / self.bytes_per_second
        if self._free_at - now > _SHORTEST_WAIT_S:
            await self._sleep(self._free_at - now)
