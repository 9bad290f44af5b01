"""``localllm verify`` and ``localllm gc``: is what lies in the store what was stored, and is anything there for nothing?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from localllm.cli.arguments import complete_model
from localllm.cli.output import Result, emit
from localllm.cli.progress import ProgressLine
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from localllm.client.client import Client
    from localllm.core.control import Task


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=complete_model)
@json_option
@remote_options
def verify(models: tuple[str, ...], as_json: bool, remote: Remote) -> None:
    """Read the files of MODELs (of all in the store) again and compare them with the SHA-256 they were stored under."""
    found = call(remote, lambda client: _verify_all(client, models))
    names = [task.result or task.title for task in found]
    emit(
        Result("verified", names, lambda: iter([f"{name}: as it was stored" for name in names])),
        as_json=as_json,
    )


async def _verify_all(client: Client, models: tuple[str, ...]) -> list[Task]:
    """The tasks at their ends. Raises what the first damaged model raises: ChecksumMismatch, StoreCorrupt."""
    from localllm.core.control import TaskPhase
    from localllm.core.errors import from_code

    names = models or [model.name for model in (await client.models()).models if model.owner == "localllm"]
    ended = []
    with ProgressLine() as line:
        for name in names:
            task = await client.verify(name)
            async for task in client.follow_task(task):  # noqa: B020 - each step is the task, further on
                line.show(f"Reading {task.title}", task.done / task.total if task.total else None)
            if task.phase is not TaskPhase.DONE:
                raise from_code(task.error_code or "cancelled", task.error or "The check was interrupted.")
            ended.append(task)
    return ended


@click.command()
@json_option
@remote_options
def gc(as_json: bool, remote: Remote) -> None:
    """Delete files that no model needs and parts of pulls that were given up."""
    from localllm.core.units import format_bytes

    found = call(remote, lambda client: client.collect())
    text = (
        f"Freed {format_bytes(found.blob_bytes + found.part_bytes)}: {format_bytes(found.blob_bytes)} without a model,"
        f" {format_bytes(found.part_bytes)} without a pull."
    )
    emit(Result("collected", found, lambda: iter([text])), as_json=as_json)
