"""Waiting for something to become true without guessing how long it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], *, within_s: float = 10.0) -> None:
    """Give the event loop turns until ``condition`` holds. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.001)
