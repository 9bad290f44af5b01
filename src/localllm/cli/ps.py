"""``localllm ps``: what is loaded and what runs, at this moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, table
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from localllm.core.control import ActiveRequest, InstanceState, State


@click.command()
@json_option
@remote_options
def command(as_json: bool, remote: Remote) -> None:
    """Models that are loaded, with the memory they take beside what was planned, and requests that run."""
    state = call(remote, lambda client: client.state(), start=False)
    data = {"instances": state.instances, "requests": state.requests}
    emit(Result("ps", data, lambda: _lines(state)), as_json=as_json)
    if not state.instances and not as_json:
        say("Nothing is loaded. A model loads by itself when it is asked something.")


def _lines(state: State) -> Iterator[str]:
    if state.instances:
        columns = [
            Column("model"),
            Column("engine", spare=4),
            Column("state", style=_phase_style),
            Column("context", right=True, spare=1),
            Column("memory", right=True),
            Column("planned", right=True, spare=5),
            Column("GPU layers", right=True, spare=2),
            Column("tok/s", right=True),
            Column("requests", right=True),
            Column("used", right=True, spare=3),
        ]
        yield from table(columns, [_instance_row(instance) for instance in state.instances])
        for instance in state.instances:
            if instance.error:
                yield f"{instance.model}: {instance.error}"
    if state.requests:
        yield ""
        columns = [
            Column("request", spare=3),
            Column("endpoint", spare=2),
            Column("model"),
            Column("state"),
            Column("prompt", right=True, spare=1),
            Column("answer", right=True),
            Column("tok/s", right=True),
            Column("for", right=True),
        ]
        yield from table(columns, [_request_row(request) for request in state.requests])


def _instance_row(instance: InstanceState) -> tuple[str | None, ...]:
    from localllm.core.units import format_bytes, format_context

    layers = None
    if instance.total_layers is not None and instance.gpu_layers is not None:
        layers = f"{instance.gpu_layers}/{instance.total_layers}"
    context = None
    if instance.context_length is not None:
        context = format_context(instance.context_length)
        if instance.parallel and instance.parallel > 1:
            context += f" × {instance.parallel}"
    loading = instance.progress is not None and instance.phase.value == "loading"
    return (
        instance.model,
        instance.engine,
        f"loading {instance.progress:.0%}" if loading else instance.phase.value,
        context,
        format_bytes(instance.measured_bytes) if instance.measured_bytes else None,
        format_bytes(instance.planned_bytes) if instance.planned_bytes else None,
        layers,
        f"{instance.tokens_per_second:.1f}" if instance.tokens_per_second else None,
        f"{instance.running}" + (f" + {instance.waiting} waiting" if instance.waiting else ""),
        _ago(instance.last_used_at),
    )


def _request_row(request: ActiveRequest) -> tuple[str | None, ...]:
    from localllm.core.units import format_duration

    return (
        request.id,
        request.endpoint,
        request.model,
        request.phase.value,
        str(request.prompt_tokens) if request.prompt_tokens is not None else None,
        str(request.completion_tokens),
        f"{request.tokens_per_second:.1f}" if request.tokens_per_second else None,
        format_duration(max(0.0, time.time() - request.started_at)),
    )


def _ago(moment: float | None) -> str | None:
    from localllm.core.units import format_duration

    if moment is None:
        return None
    passed = max(0.0, time.time() - moment)
    return "now" if passed < 1 else format_duration(passed) + " ago"


def _phase_style(cell: str) -> str | None:
    word = cell.split()[0]
    return {"ready": "green", "busy": "green", "crashed": "red", "quarantined": "red"}.get(word)
