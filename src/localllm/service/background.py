"""Tasks that outlive the call that started them: kept (so none is collected midway), named, and logged when they fail.

A bare ``asyncio.create_task`` loses its task and its error; ``Background`` is a ``TaskGroup`` in which one failure
does not end the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

log = logging.getLogger(__name__)


class Background:
    """A scope for background tasks: entered once by the service, cancelled as a whole when it is left."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self.open = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self.open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open = False
        for task in self._tasks:
            task.cancel()
        # An error of the body stays what it is: the group would wrap it, and callers could not tell it any more.
        cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        await self._group.__aexit__(*((kind, error, trace) if cancelled else (None, None, None)))

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Start ``work``; an exception that it raises is logged under ``name`` and goes no further."""
        if not self.open:
            work.close()
            raise RuntimeError(f"{name}: the service is closing and starts nothing more")
        task = self._group.create_task(_logged(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # one that is cancelled before its first step has never been awaited, and Python would complain of that
        task.add_done_callback(lambda _: work.close())
        return task


async def _logged(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except Exception:
        log.exception("background task failed", extra={"task": name})
