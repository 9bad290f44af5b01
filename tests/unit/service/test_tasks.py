from __future__ import annotations

import asyncio

from localllm.core.control import TaskPhase
from localllm.core.errors import Cancelled, GGUFError
from localllm.service.background import Background
from localllm.service.tasks import Progress, Tasks
from tests.support.until import until


async def test_a_task_is_followed_to_its_result() -> None:
    go = asyncio.Event()
    changes: list[int] = []

    async def work(progress: Progress) -> str:
        progress.report(50, 100, stage="copying")
        await go.wait()
        return "the name"

    async with Background() as background:
        tasks = Tasks(background, lambda: changes.append(1))
        task = tasks.start("import", "a file", work)
        await until(lambda: tasks.get(task.id).done == 50)
        shown = tasks.get(task.id)
        assert (shown.total, shown.stage, shown.phase) == (100, "copying", TaskPhase.RUNNING)
        go.set()
        await until(lambda: tasks.get(task.id).phase is TaskPhase.DONE)
        assert tasks.get(task.id).result == "the name"
    assert len(changes) >= 3


async def test_a_failed_task_says_why() -> None:
    async def bad(progress: Progress) -> None:
        raise GGUFError("It is a zip archive.", hint="Unpack it.")

    async def cancelled(progress: Progress) -> None:
        raise Cancelled("Stopped.")

    async with Background() as background:
        tasks = Tasks(background)
        failed, ended = tasks.start("import", "x", bad), tasks.start("load", "y", cancelled)
        await until(lambda: all(t.phase is not TaskPhase.RUNNING for t in tasks.all()))
    assert tasks.get(failed.id).phase is TaskPhase.FAILED
    assert tasks.get(failed.id).error_code == "bad_gguf"
    assert tasks.get(failed.id).error == "It is a zip archive. Unpack it."
    assert tasks.get(ended.id).phase is TaskPhase.CANCELLED
