"""``localllm pull``: look closely at a model elsewhere, then fetch it into the store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Result, emit, paint, pairs, print_line
from localllm.cli.progress import ProgressLine
from localllm.cli.session import Remote, call, json_option, remote_options
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from localllm.client.client import Client
    from localllm.core.control import FitRow, PullPreview, PullRequest, Task


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("--quant", metavar="QUANT", help="The quantisation; by default, what is best on this machine.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show what would be fetched, and stop.")
@click.option("--detach", is_flag=True, help="Return at once; the service goes on fetching.")
@json_option
@remote_options
def command(
    model: str, quant: str | None, yes: bool, dry_run: bool, detach: bool, as_json: bool, remote: Remote
) -> None:
    """Fetch MODEL into the store. Its header is read first: what fits here is said before any weight is fetched.

    \b
    qwen3:8b                     a model of the catalogue, in the best quantisation for this machine
    qwen3-8b:Q5_K_M              …or in this one
    hf.co/ORG/REPO[:QUANT|:FILE] a repository at Hugging Face (also ORG/REPO[:QUANT])
    ollama:NAME[:TAG]            from Ollama's registry, without Ollama
    https://…/model.gguf         a file at any address

    The service does the fetching: it goes on when this command is interrupted, and after a restart. With --json, one
    line of JSON for each step, and the model at the end.
    """
    from localllm.core.control import PullRequest
    from localllm.hub.references import parse_reference

    parse_reference(model)
    request = PullRequest(reference=model, quant=quant)
    preview = call(remote, lambda client: client.preview(request))
    if dry_run:
        emit(Result("preview", preview, lambda: _lines(preview)), as_json=as_json)
        return
    if not as_json:
        for line in _lines(preview):
            say(line)
    if not yes and sys.stdin.isatty() and not preview.here:
        click.confirm("Fetch it?", default=True, abort=True, err=True)
    _fetch(remote, request, preview, detach=detach, as_json=as_json)


def _fetch(
    remote: Remote, request: PullRequest, preview: PullPreview, *, detach: bool, as_json: bool
) -> None:
    from localllm.core.control import TaskPhase
    from localllm.core.errors import from_code

    try:
        task = call(remote, lambda client: _follow(client, request, detach=detach, as_json=as_json))
    except KeyboardInterrupt:
        say(f"The service goes on fetching {preview.name}. See it with: localllm downloads")
        raise
    if detach and task.phase in (TaskPhase.WAITING, TaskPhase.RUNNING):
        emit(
            Result("task", task, lambda: iter([f"Fetching {task.title} in the background."])), as_json=as_json
        )
        return
    if task.phase is not TaskPhase.DONE:
        stopped = f"The download is {task.phase.value}."
        raise from_code(task.error_code or "download_failed", task.error or stopped)
    name = task.result or preview.name
    detail = call(remote, lambda client: client.model(name))
    if as_json:
        print_line("model", detail)
    else:
        print(clean_text(f"Pulled {detail.summary.name}."))
        say(f"Ask it something: localllm run {detail.summary.name} 'Hello'")


async def _follow(client: Client, request: PullRequest, *, detach: bool, as_json: bool) -> Task:
    """The task as it is at its end, or when it was paused; each step is shown."""
    from localllm.core.control import TaskPhase

    task = await client.pull(request)
    if detach:
        return task
    with ProgressLine() as line:
        async for task in client.follow_task(task):  # noqa: B020 - each step is the task, further on
            if as_json:
                print_line("progress", task)
            else:
                line.show(_words(task), task.done / task.total if task.total else None)
            if task.phase is TaskPhase.PAUSED:
                return task
    return task


def _words(task: Task) -> str:
    from localllm.core.units import format_bytes, format_duration

    words = [task.stage or task.phase.value, f"{format_bytes(task.done)} of {format_bytes(task.total or 0)}"]
    if task.rate_bytes_per_second:
        words.append(f"{format_bytes(round(task.rate_bytes_per_second))}/s")
    if task.eta_seconds is not None:
        words.append(f"{format_duration(task.eta_seconds)} left")
    return "  ".join(words)


def _lines(preview: PullPreview) -> Iterator[str]:
    from localllm.core.units import format_bytes, format_context, format_count

    yield paint(clean_text(preview.name), "bold")
    size = format_bytes(preview.size_bytes)
    if len(preview.files) > 1:
        size += f" in {len(preview.files)} files"
    fetch = "nothing: it is here already" if preview.here else format_bytes(preview.missing_bytes)
    context = preview.trained_context_length
    yield from pairs(
        [
            ("from", preview.origin),
            ("quantisation", f"{preview.quant or 'unknown'} ({preview.quant_reason})"),
            ("size", size),
            ("to fetch", f"{fetch}; {format_bytes(preview.free_bytes)} are free"),
            ("architecture", preview.architecture),
            ("parameters", format_count(preview.parameters) if preview.parameters else None),
            ("trained context", format_context(context) if context else None),
            ("can", ", ".join(preview.capabilities) or None),
            ("licence", preview.licence),
            ("on this machine", _verdict(preview)),
        ]
    )


def _verdict(preview: PullPreview) -> str | None:
    if preview.foreign:
        return f"only through Ollama: {preview.foreign}"
    row = next((row for row in preview.fit.rows if row.quant == preview.quant), None) if preview.fit else None
    return _row_words(row, preview.fit.context_length) if row and preview.fit else None


def _row_words(row: FitRow, context_length: int) -> str:
    from localllm.core.control import Verdict
    from localllm.core.units import format_bytes, format_context

    words = {
        Verdict.FITS: "fits",
        Verdict.TIGHT: "fits, with little to spare",
        Verdict.PARTIAL: f"{row.gpu_layers} of {row.total_layers} layers fit on the GPU, the rest runs on the CPU",
        Verdict.NO: "does not fit",
    }[row.verdict]
    taken = f"{format_bytes(row.total_bytes)} of {format_bytes(row.budget_bytes)}"
    speed = f", about {row.decode_tokens_per_second:.0f} tok/s" if row.decode_tokens_per_second else ""
    return f"{words}: {taken} at {format_context(context_length)} of context{speed}"
