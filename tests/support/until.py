"""Waiting for something to become true without guessing how long it takes."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable

_LOOK_EVERY_S = 0.001


async def until(condition: Callable[[], bool], *, within_s: float = 10.0) -> None:
    """Give the event loop turns until ``condition`` holds. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        for _ in itertools.count():
            if condition():
                return
            await asyncio.sleep(_LOOK_EVERY_S)


def wait_until(condition: Callable[[], bool], *, within_s: float = 20.0, what: str = "it") -> None:
    """The same without an event loop, for what another process does."""
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {within_s} s")
        time.sleep(0.02)
