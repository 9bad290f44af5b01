"""Taking a model file into the store as a task that can be watched: the copy runs in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from localllm.core.control import ImportRequest, Task
from localllm.core.errors import Cancelled
from localllm.hub.store import Store
from localllm.service.tasks import Progress, Tasks

_REPORT_EVERY_S = 0.25


def start_import(tasks: Tasks, store: Store, request: ImportRequest, on_done: Callable[[], None]) -> Task:
    """Begin the import; the task's ``result`` is the name the model got."""
    path = Path(request.path).expanduser()

    async def work(progress: Progress) -> str:
        stopped = False
        loop = asyncio.get_running_loop()
        reported = 0.0

        def on_progress(done: int, total: int) -> None:
            nonlocal reported
            if stopped:
                raise Cancelled("The import was interrupted.")
            now = time.monotonic()
            if done >= total or now - reported >= _REPORT_EVERY_S:
                reported = now
                loop.call_soon_threadsafe(progress.report, done, total)

        try:
            model = await asyncio.to_thread(
                store.import_file,
                path,
                name=request.name,
                mode=request.mode,
                chat_template=request.chat_template,
                stop=request.stop,
                sampling=request.sampling,
                licence=request.licence,
                source=request.source,
                on_progress=on_progress,
            )
        finally:
            stopped = True  # a thread cannot be cancelled: it stops at its next report
        on_done()
        return model.name

    return tasks.start("import", path.name, work)
