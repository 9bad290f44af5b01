"""``localllm load``: put a model into memory before somebody waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.arguments import context_options, model_argument, profile_option
from localllm.cli.output import Result, emit, paint
from localllm.cli.progress import ProgressLine
from localllm.cli.session import Remote, call, json_option, remote_options
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from typing import Literal

    from localllm.client.client import Client
    from localllm.core.control import InstanceState, LoadRequest

    Profile = Literal["chat", "code", "agent", "long-document", "batch"]


@click.command()
@model_argument
@context_options
@profile_option()
@click.option(
    "--engine", type=click.Choice(["llama_server", "llama_cpp", "ollama"]), help="Which engine runs it."
)
@click.option("--gpu-layers", type=click.IntRange(min=0), metavar="N", help="Layers on the GPU; 0 = none.")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads for decoding.")
@click.option(
    "--keep-alive", type=click.FloatRange(min=0), metavar="SECONDS", help="Unload when idle for so long."
)
@click.option("--pin", is_flag=True, help="Keep it loaded, whatever else wants the memory.")
@click.option("--force", is_flag=True, help="Load even if it seems not to fit, or crashed before.")
@json_option
@remote_options
def command(
    model: str,
    context_length: int | None,
    kv_type: str | None,
    parallel: int | None,
    profile: Profile | None,
    engine: str | None,
    gpu_layers: int | None,
    threads: int | None,
    keep_alive: float | None,
    pin: bool,
    force: bool,
    as_json: bool,
    remote: Remote,
) -> None:
    """Load MODEL. What is not said here, the planner decides from the memory that is free now."""
    from localllm.core.control import LoadRequest

    request = LoadRequest(
        model=model,
        engine=engine,
        context_length=context_length,
        parallel=parallel,
        kv_type=kv_type,
        gpu_layers=gpu_layers,
        threads=threads,
        keep_alive_seconds=keep_alive,
        pin=pin,
        force=force,
        profile=profile,
    )
    state = call(remote, lambda client: load_showing_progress(client, request))
    emit(Result("instance", state, lambda: _lines(state)), as_json=as_json)


async def load_showing_progress(client: Client, request: LoadRequest) -> InstanceState:
    """Load, with a line on stderr that says how far it is."""
    with ProgressLine() as line:
        line.show(f"Loading {request.model}")
        return await client.load(
            request, on_progress=lambda task: line.show(_stage(request.model, task.stage), _fraction(task))
        )


def _stage(model: str, stage: str | None) -> str:
    return f"Loading {model}" if not stage else f"Loading {model}: {stage}"


def _fraction(task: object) -> float | None:
    done, total = getattr(task, "done", 0), getattr(task, "total", None)
    return done / total if total else None


def _lines(state: InstanceState) -> Iterator[str]:
    """What is loaded, and on a line of its own why so."""
    from localllm.core.units import format_bytes

    text = f"{state.model} is {state.phase.value} on {state.engine}"
    if state.context_length:
        text += f", {state.context_length} tokens of context"
        if state.parallel and state.parallel > 1:
            text += f" for each of {state.parallel} requests"
    taken = state.measured_bytes or state.planned_bytes
    if taken:
        text += f", {format_bytes(taken)}"
    yield text + "."
    if state.reason:
        yield paint(state.reason[:1].upper() + state.reason[1:], "dim")
    for warning in state.warnings:
        yield paint("Note: ", "yellow") + clean_text(warning)
