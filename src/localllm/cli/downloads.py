"""``localllm downloads``: the pulls that are under way, and pausing, resuming, cancelling or slowing them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import click

from localllm.cli.arguments import ByteCount
from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, table
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from localllm.client.client import Client
    from localllm.core.control import Task

Action = Literal["pause", "resume", "cancel"]


@click.command()
@click.argument("action", required=False, type=click.Choice(["pause", "resume", "cancel"]))
@click.argument("model", required=False)
@click.option(
    "--limit",
    type=ByteCount(),
    metavar="BYTES",
    help="Hold all downloads together to so many bytes a second.",
)
@click.option("--no-limit", is_flag=True, help="As fast as the line.")
@json_option
@remote_options
def command(
    action: Action | None, model: str | None, limit: int | None, no_limit: bool, as_json: bool, remote: Remote
) -> None:
    """Pulls that are under way. With an ACTION, do that to the pull of MODEL, or to all of them.

    A paused pull keeps what it has; cancel deletes it. --limit counts until the service ends; the setting
    downloads.bytes_per_second counts for good.
    """
    if limit is not None or no_limit:
        call(remote, lambda client: _limit(client, None if no_limit else limit))
    tasks = call(remote, lambda client: _act(client, action, model))
    emit(Result("downloads", tasks, lambda: _lines(tasks)), as_json=as_json)
    if not tasks and not as_json:
        say("No downloads. Fetch a model with: localllm pull NAME")


async def _limit(client: Client, bytes_per_second: int | None) -> None:
    from localllm.core.control import DownloadLimit

    await client.limit_downloads(DownloadLimit(bytes_per_second=bytes_per_second))


async def _act(client: Client, action: Action | None, model: str | None) -> list[Task]:
    """Every pull, those that were meant as they are after the action. Raises NotFound when MODEL is not being pulled."""
    from localllm.core.errors import NotFound

    tasks = [task for task in (await client.state()).tasks if task.kind == "pull"]
    if model is not None:
        tasks = [task for task in tasks if model.lower() in (task.title.lower(), task.id)]
        if not tasks:
            raise NotFound(f"{model} is not being fetched.", hint="See what is: localllm downloads")
    if action is None:
        return tasks
    open_ones = [task for task in tasks if task.phase.value in ("waiting", "running", "paused")]
    return [await client.steer_download(task.id, action) for task in open_ones]


def _lines(tasks: list[Task]) -> Iterator[str]:
    from localllm.core.units import format_bytes, format_duration

    if not tasks:
        return
    columns = [
        Column("model"),
        Column("state"),
        Column("done", right=True),
        Column("size", right=True),
        Column("speed", right=True),
        Column("left", right=True),
        Column("now"),
    ]
    yield from table(
        columns,
        [
            (
                task.title,
                task.phase.value,
                f"{task.done / task.total:.0%}" if task.total else None,
                format_bytes(task.total) if task.total else None,
                f"{format_bytes(round(task.rate_bytes_per_second))}/s"
                if task.rate_bytes_per_second
                else None,
                format_duration(task.eta_seconds) if task.eta_seconds is not None else None,
                task.error or task.stage,
            )
            for task in tasks
        ],
    )
