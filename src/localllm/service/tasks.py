"""Long work that a person follows: imports, loads, later pulls and verifications; shown while it runs and a while after."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from msgspec.structs import replace

from localllm.core.control import Task, TaskPhase
from localllm.core.errors import Cancelled, LocalLLMError
from localllm.service.background import Background

_SHOWN_AFTER_END_S = 60.0
_RATE_WINDOW_S = 2.0

Kind = Literal["import", "pull", "load", "verify"]


class Progress:
    """Handed to the work, which calls ``report`` as often as it likes (from the event loop)."""

    def __init__(self, tasks: Tasks, task_id: str) -> None:
        self.id = task_id
        self._tasks = tasks
        self._mark: tuple[float, int] | None = None

    def report(self, done: int, total: int | None = None, *, stage: str | None = None) -> None:
        """``done`` of ``total`` in the task's unit; the rate is that of about the last two seconds."""
        now = time.monotonic()
        task = self._tasks.get(self.id)
        rate = task.rate_bytes_per_second
        if self._mark is None:
            self._mark = (now, done)
        elif now - self._mark[0] >= _RATE_WINDOW_S:
            rate = (done - self._mark[1]) / (now - self._mark[0])
            self._mark = (now, done)
        eta = (total - done) / rate if total and rate and task.unit == "bytes" else None
        self._tasks.change(
            replace(
                task,
                done=done,
                total=total if total is not None else task.total,
                stage=stage or task.stage,
                rate_bytes_per_second=rate if task.unit == "bytes" else None,
                eta_seconds=eta,
            )
        )


Work = Callable[[Progress], Awaitable[str | None]]


class Tasks:
    def __init__(self, background: Background, on_change: Callable[[], None] = lambda: None) -> None:
        self._background = background
        self._on_change = on_change
        self._tasks: dict[str, Task] = {}
        self._ended: dict[str, float] = {}

    def start(
        self, kind: Kind, title: str, work: Work, *, unit: Literal["bytes", "percent"] = "bytes"
    ) -> Task:
        """Begin ``work``; what it returns becomes the task's ``result``, what it raises its error."""
        self._forget_old()
        task = Task(id=secrets.token_hex(8), kind=kind, title=title, phase=TaskPhase.RUNNING, unit=unit)
        self.change(task)
        self._background.spawn(self._run(task.id, work), name=f"{kind} {title}")
        return task

    def get(self, task_id: str) -> Task:
        return self._tasks[task_id]

    def all(self) -> tuple[Task, ...]:
        self._forget_old()
        return tuple(self._tasks.values())

    def change(self, task: Task) -> None:
        self._tasks[task.id] = task
        self._on_change()

    def show(self, task: Task) -> None:
        """A task that another part of the service runs: like the others it goes some time after it has ended."""
        if task.phase in (TaskPhase.DONE, TaskPhase.FAILED, TaskPhase.CANCELLED):
            self._ended[task.id] = time.monotonic()
        else:
            self._ended.pop(task.id, None)
        self.change(task)

    async def _run(self, task_id: str, work: Work) -> None:
        changes: dict[str, object]
        try:
            result = await work(Progress(self, task_id))
        except LocalLLMError as error:
            changes = {
                "phase": TaskPhase.CANCELLED if isinstance(error, Cancelled) else TaskPhase.FAILED,
                "error_code": error.code,
                "error": f"{error.message} {error.hint or ''}".strip(),
            }
        except BaseException:
            self._end(task_id, {"phase": TaskPhase.FAILED, "error": "It was interrupted."})
            raise
        else:
            changes = {"phase": TaskPhase.DONE, "result": result}
        self._end(task_id, changes)

    def _end(self, task_id: str, changes: dict[str, object]) -> None:
        self._ended[task_id] = time.monotonic()
        self.change(replace(self._tasks[task_id], eta_seconds=None, rate_bytes_per_second=None, **changes))

    def _forget_old(self) -> None:
        now = time.monotonic()
        for task_id, ended in list(self._ended.items()):
            if now - ended > _SHOWN_AFTER_END_S:
                del self._ended[task_id], self._tasks[task_id]
