"""``localllm recommend``: which models this machine should run, before any is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from localllm.cli.arguments import profile_option, simulate_option
from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, paint, table
from localllm.cli.session import json_option
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from localllm.core.known_models import KnownModel
    from localllm.core.machine import Machine
    from localllm.core.suggest import Candidate, Suggestion

_NOT_TO_TALK_TO = re.compile(r"embed|guard|reranker|-base|pretrain|reader|cleaner", re.IGNORECASE)
_FOR_CODE = re.compile(r"code|devstral|terminal", re.IGNORECASE)
_PURPOSE = {"code": "coding", "agent": "tools"}


@click.command()
@profile_option("--task", "What for: how long a context, how fast it must answer, and which models count.")
@simulate_option
@click.option("--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="How many models.")
@json_option
def command(profile: str | None, simulate: str | None, limit: int, as_json: bool) -> None:
    """Models for this machine, best first: each planned from its published figures, at the best quantisation that fits.

    The order is by size, not by a benchmark of answers: of those that are quick enough for the task and were trained on
    the context it wants, the larger first. Look closer with: localllm plan MODEL
    """
    from localllm.cli.local_model import machine_for, speed_ratios
    from localllm.core.plan import Profile
    from localllm.core.suggest import suggest
    from localllm.hardware.devices import load_device_table

    task = profile or "chat"
    machine = machine_for(simulate)
    found = suggest(
        candidates_for(task),
        machine,
        profile=Profile(task),
        device_table=load_device_table(),
        own_ratios=speed_ratios(None, machine),
        limit=limit,
    )
    emit(Result("recommend", found, lambda: _lines(found, task, machine)), as_json=as_json)
    if not found and not as_json:
        say("No known model fits here and is quick enough. Try another --task, or see: localllm hw")


def candidates_for(task: str) -> tuple[Candidate, ...]:
    """The catalogue's models for ``task`` whose figures are known; with an empty catalogue, every known model."""
    from localllm.cli.local_model import catalogue, figures_of, known_models
    from localllm.core.suggest import Candidate

    known = known_models()
    curated = catalogue()
    if not curated:
        return _from_figures(known, task)
    return tuple(
        Candidate(name=model.name, figures=match.figures)
        for model in curated
        if _serves(task, (*model.purposes, *model.capabilities))
        and (match := figures_of(model, known)) is not None
    )


def _serves(task: str, purposes: Sequence[str]) -> bool:
    if "embedding" in purposes and "chat" not in purposes:
        return False
    wanted = _PURPOSE.get(task)
    return wanted is None or wanted in purposes


def _from_figures(known: Sequence[KnownModel], task: str) -> tuple[Candidate, ...]:
    from localllm.core.suggest import Candidate

    found = []
    for model in known:
        names = [name for name in model.names if not _NOT_TO_TALK_TO.search(name)]
        if task == "code":
            names = [name for name in names if _FOR_CODE.search(name)]
        if names:
            found.append(Candidate(name=names[0], figures=model.figures))
    return tuple(found)


def _lines(found: Sequence[Suggestion], task: str, machine: Machine) -> Iterator[str]:
    from localllm.core.units import format_bytes, format_context, format_count

    if not found:
        return
    devices = " + ".join(gpu.name for gpu in machine.gpus) or machine.cpu.name
    yield paint(clean_text(f"For {task} on {devices}"), "bold")
    columns = [
        Column("model"),
        Column("quant"),
        Column("parameters", right=True, spare=3),
        Column("file", right=True, spare=1),
        Column("memory", right=True),
        Column("context", right=True),
        Column("tok/s", right=True),
        Column("placed", style=lambda cell: None if cell == "whole" else "yellow"),
    ]
    rows = [
        (
            suggestion.name,
            suggestion.quant,
            _parameters(suggestion),
            format_bytes(suggestion.file_bytes),
            format_bytes(suggestion.total_bytes),
            format_context(suggestion.context_length)
            + (f" × {suggestion.parallel}" if suggestion.parallel > 1 else ""),
            format_count(round(suggestion.decode_tokens_per_second))
            if suggestion.decode_tokens_per_second
            else None,
            "whole" if suggestion.whole else "part on CPU",
        )
        for suggestion in found
    ]
    yield from table(columns, rows)


def _parameters(suggestion: Suggestion) -> str:
    from localllm.core.units import format_count

    text = format_count(suggestion.parameters)
    if suggestion.active_parameters < 0.6 * suggestion.parameters:
        text += f" ({format_count(suggestion.active_parameters)} active)"
    return text
