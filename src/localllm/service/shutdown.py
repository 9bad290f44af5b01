"""Stopping in order: nothing new is admitted, what runs may end, the rest is told, and only then do parts close."""

from __future__ import annotations

import asyncio
import logging

from localllm.service.activity import Activity
from localllm.service.manager import Manager

log = logging.getLogger(__name__)


class Shutdown:
    """Asked for by a signal or by the control namespace; carried out by whoever runs the server."""

    def __init__(self, *, drain_s: float) -> None:
        self.requested = asyncio.Event()
        self.drain_s = drain_s
        self.restart = False
        self._draining: asyncio.Timeout | None = None

    def request(self, drain_s: float | None = None, *, restart: bool = False) -> None:
        """Stop soon, and with ``restart`` start again. Asked a second time, stop now."""
        self.restart = self.restart or restart
        if self.requested.is_set():
            self.drain_s = 0.0
            if self._draining is not None:
                self._draining.reschedule(asyncio.get_running_loop().time())
        elif drain_s is not None:
            self.drain_s = drain_s
        self.requested.set()

    async def drain(self, manager: Manager, activity: Activity) -> None:
        """Admit nothing more and wait for open requests, at most ``drain_s`` seconds from now."""
        manager.stop_admitting()
        try:
            async with asyncio.timeout(self.drain_s) as self._draining:
                await activity.quiet.wait()
        except TimeoutError:
            log.warning("requests cut off by the stop", extra={"requests": len(activity.open)})
