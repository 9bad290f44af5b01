"""Work that lives only as long as its client: streaming or not, a client that leaves ends its request.

ASGI tells of a departure only to whoever asks ``receive``; so something must always be asking while an answer is
being made. (Middleware that hides ``receive``, as Starlette's BaseHTTPMiddleware does, has no place in this port.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientLeft(Exception):
    """The client closed its connection before its answer was complete. Nobody is there to be told."""


async def while_connected(
    receive: Receive, work: Coroutine[Any, Any, T], beside: Coroutine[Any, Any, None] | None = None
) -> T:
    """Run ``work`` to its end, or cancel it as soon as the client is gone.

    ``beside`` runs along with it, is cancelled when it ends, and ends it by raising.

    Raises:
        ClientLeft: the client left first; ``work`` has been cancelled and has cleaned up.
    """
    left = False

    async def watch(task: asyncio.Task[T]) -> None:
        nonlocal left
        while (await receive())["type"] != "http.disconnect":
            pass
        left = True
        task.cancel()

    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            companions = [group.create_task(watch(task))]
            if beside is not None:
                companions.append(group.create_task(beside))
            task.add_done_callback(lambda _: [companion.cancel() for companion in companions])
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    if left:
        raise ClientLeft
    return task.result()
