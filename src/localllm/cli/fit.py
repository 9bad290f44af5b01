"""``localllm fit``: which quantisation of a model fits this machine, how long its context can be, how fast it will run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.arguments import as_option, complete_model, context_options, simulate_option
from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, paint, table
from localllm.cli.session import Remote, call, json_option, remote_options
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from localllm.client.client import Client
    from localllm.core.control import FitRow, FitTable


@click.command()
@click.argument("model", shell_complete=complete_model)
@context_options
@simulate_option
@as_option
@json_option
@remote_options
def command(
    model: str,
    context_length: int | None,
    kv_type: str | None,
    parallel: int | None,
    simulate: str | None,
    target: str | None,
    as_json: bool,
    remote: Remote,
) -> None:
    """One row per quantisation of MODEL: what it takes and whether that is free.

    MODEL is a name in the store, a GGUF file, a repository (ORG/REPO), or a well-known model that is not here
    (Qwen3-32B), which is planned from its figures.

    ★ is what this machine should run, ● a file that is here. "of" is the memory that is free now.

    \b
    verdict  fits     all of it on the best device
             tight    fits, with less than 5 % to spare
             partial  some layers stay on the CPU
             no       does not fit
    """
    if target is not None:
        _print_as(target, model, context_length, kv_type, parallel, simulate, as_json=as_json)
        return
    if simulate is not None or model.endswith(".gguf") or not _is_for_the_service(model, remote):
        found = _here(model, context_length, kv_type, parallel, simulate)
    else:
        found = call(remote, lambda client: _asked(client, model, context_length, kv_type, parallel))
    emit(Result("fit", found, lambda: _lines(found)), as_json=as_json)


def _here(
    model: str, context_length: int | None, kv_type: str | None, parallel: int | None, simulate: str | None
) -> FitTable:
    """Computed in this process, from the header alone: for a file, or for a machine that is not this one."""
    from localllm.cli.local_model import find_model_or_figures, machine_for, speed_ratios, taught_here
    from localllm.core.recommend import fit_table
    from localllm.hardware.devices import load_device_table

    found, machine = find_model_or_figures(model), machine_for(simulate)
    return fit_table(
        found.facts,
        machine,
        model=found.name if not found.here else model,
        here={found.facts.quant: found.facts.size_bytes} if found.here else {},
        context_length=context_length,
        kv_type=kv_type or "f16",
        parallel=parallel or 1,
        device_table=load_device_table(),
        own_ratios=speed_ratios(found, machine),
        corrections=taught_here(machine),
    )


async def _asked(
    client: Client, model: str, context_length: int | None, kv_type: str | None, parallel: int | None
) -> FitTable:
    """What the service says: of a model that is there, else of a repository, whose listing gives the real sizes."""
    from localllm.core.control import PullRequest
    from localllm.core.errors import GGUFError, ModelNotFound

    try:
        return await client.fit(model, context_length=context_length, kv_type=kv_type, parallel=parallel)
    except ModelNotFound:
        if "/" not in model:
            raise
    preview = await client.preview(PullRequest(reference=model))
    if preview.fit is None:
        raise GGUFError(preview.foreign or f"The header of {model} does not say what the planner needs.")
    if context_length or kv_type or parallel:
        say("A repository's table is for the usual context; pull the model to ask for another.")
    return preview.fit


def _is_for_the_service(model: str, remote: Remote) -> bool:
    """Whether the service has to be asked: about another machine, a repository, and what is in the store here.

    A name that is neither in the store nor well known is the service's to refuse: it knows what is near.
    """
    from localllm.cli.local_model import find_model_or_figures
    from localllm.core.errors import LocalLLMError

    if remote.host is not None or "/" in model:
        return True
    try:
        return find_model_or_figures(model).here
    except LocalLLMError:
        return True


def _print_as(
    target: str,
    model: str,
    context_length: int | None,
    kv_type: str | None,
    parallel: int | None,
    simulate: str | None,
    *,
    as_json: bool,
) -> None:
    from localllm.cli.local_model import find_model_or_figures, machine_for
    from localllm.cli.plan import plan_as_load, print_export

    found, machine = find_model_or_figures(model), machine_for(simulate)
    plan = plan_as_load(found, machine, context_length, kv_type, parallel, None)
    print_export(found, machine, plan, target, as_json=as_json)


def _lines(found: FitTable) -> Iterator[str]:
    from localllm.core.units import format_context

    yield paint(
        f"{clean_text(found.model)} on {clean_text(found.device)}, {format_context(found.context_length)} of context"
        + (f" × {found.parallel}" if found.parallel > 1 else "")
        + f", KV {found.kv_type_k}",
        "bold",
    )
    columns = [
        Column(""),
        Column("quant"),
        Column("file", right=True, spare=3),
        Column("weights", right=True, spare=4),
        Column("KV", right=True, spare=5),
        Column("compute", right=True, spare=6),
        Column("total", right=True),
        Column("of", right=True, spare=2),
        Column("verdict", style=_verdict_style),
        Column("longest", right=True),
        Column("tok/s", right=True),
        Column("quality", spare=1),
    ]
    yield from table(columns, [_row(row) for row in found.rows])
    if found.recommendation:
        yield ""
        yield clean_text(found.recommendation)
    for warning in found.warnings:
        yield paint("Note: ", "yellow") + clean_text(warning)


def _row(row: FitRow) -> tuple[str | None, ...]:
    from localllm.core.units import format_bytes, format_context

    marks = ("★" if row.recommended else "") + ("●" if row.here else "")
    verdict = row.verdict.value
    if verdict == "partial" and row.gpu_layers is not None:
        verdict += f" {row.gpu_layers}/{row.total_layers}"
    return (
        marks or " ",
        row.quant,
        format_bytes(row.file_bytes),
        format_bytes(row.weights_bytes),
        format_bytes(row.kv_bytes),
        format_bytes(row.compute_bytes + row.overhead_bytes),
        format_bytes(row.total_bytes),
        format_bytes(row.budget_bytes),
        verdict,
        format_context(row.longest_context) if row.longest_context else None,
        _speed(row),
        row.quality,
    )


def _speed(row: FitRow) -> str | None:
    if row.decode_tokens_per_second is None:
        return None
    text = _rate(row.decode_tokens_per_second)
    if row.decode_low is not None and row.decode_high is not None:
        text += f" ({_rate(row.decode_low)}–{_rate(row.decode_high)})"
    return text


def _rate(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:.0f}"


def _verdict_style(cell: str) -> str | None:
    return {"fits": "green", "tight": "yellow", "partial": "yellow", "no": "red"}.get(cell.split()[0])
