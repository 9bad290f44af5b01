"""Looking after the store: reading a model's files again, and deleting what nobody needs."""

from __future__ import annotations

import asyncio
import time

from localllm.core.control import Collected, Task
from localllm.core.errors import Cancelled, Conflict
from localllm.hub.store import Store, StoredModel
from localllm.service.downloads import Downloads
from localllm.service.tasks import Progress, Tasks

_REPORT_EVERY_S = 0.25


def start_verify(tasks: Tasks, store: Store, model: StoredModel) -> Task:
    """Read the model again and compare; the task's ``result`` is its name.

    Raises:
        Conflict: it belongs to another tool, so there is no digest to compare with.
    """
    if model.owner != "localllm":
        raise Conflict(f"{model.name} belongs to {model.owner}; only what is in our store can be verified.")

    async def work(progress: Progress) -> str:
        stopped = False
        loop = asyncio.get_running_loop()
        reported = 0.0

        def on_progress(done: int, total: int) -> None:
            nonlocal reported
            if stopped:
                raise Cancelled("The check was interrupted.")
            now = time.monotonic()
            if done >= total or now - reported >= _REPORT_EVERY_S:
                reported = now
                loop.call_soon_threadsafe(progress.report, done, total)

        try:
            return (await asyncio.to_thread(store.verify, model.name, on_progress)).name
        finally:
            stopped = True  # a thread cannot be cancelled: it stops at its next report

    return tasks.start("verify", model.name, work)


async def collect(store: Store, downloads: Downloads) -> Collected:
    """Delete blobs that no model needs and parts that no pull needs."""
    return Collected(blob_bytes=await asyncio.to_thread(store.collect), part_bytes=await downloads.collect())
