"""``localllm tune``: find the fastest threads and batch sizes for a model here, and keep them for every later load."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.arguments import model_argument
from localllm.cli.output import Result, emit, paint, pairs
from localllm.cli.progress import ProgressLine
from localllm.cli.session import json_option

if TYPE_CHECKING:
    from localllm.engines.llama_cpp.lab_request import Trial, TuneResult

_TOKENS = 512


@click.command()
@model_argument
@click.option(
    "--threads",
    "candidates",
    multiple=True,
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Try only these.",
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 20))
@click.option("--dry-run", is_flag=True, help="Measure, but keep nothing.")
@json_option
def command(model: str, candidates: tuple[int, ...], rounds: int, dry_run: bool, as_json: bool) -> None:
    """Calibrate MODEL on this machine: threads for decoding and for prefill, and the ubatch. Takes seconds.

    Run it while the machine does what it usually does: on a shared one the right number of threads is smaller.
    """
    from localllm.cli.local_model import build_in_use, find_local_model, plan_for, this_machine
    from localllm.engines.llama_cpp.lab import run_tune
    from localllm.engines.llama_cpp.lab_request import TuneRequest
    from localllm.engines.tuning import Tuned, TuningFile
    from localllm.settings.paths import resolve_paths

    found, machine = find_local_model(model), this_machine()
    plan = plan_for(found, machine, tokens=_TOKENS, threads=None, gpu_layers=None, kv_type="f16")
    with ProgressLine() as line:
        result = run_tune(
            TuneRequest(plan=plan, threads=tuple(candidates), rounds=rounds),
            lambda step: line.show(f"{found.name}: {step.label}", step.done / step.total),
            build_dir=build_in_use(),
        )
    device = machine.gpus[0] if plan.gpu_layers and machine.gpus else machine.cpu
    tuned = Tuned(
        model_key=found.key,
        model=found.name,
        device=device.name,
        threads=result.threads,
        batch_threads=result.batch_threads,
        ubatch=result.ubatch,
        decode_tokens_per_second=_speed(result.decode, result.threads),
        prefill_tokens_per_second=_speed(result.ubatches, result.ubatch),
        build=result.engine_version,
        at=time.time(),
    )
    if not dry_run:
        TuningFile(resolve_paths().tuning_file).keep(tuned)
    emit(Result("tune", result, lambda: _lines(result, kept=not dry_run)), as_json=as_json)


def _speed(trials: tuple[Trial, ...], value: int) -> float:
    return next(t.tokens_per_second for t in trials if t.value == value)


def _lines(result: TuneResult, *, kept: bool) -> Iterator[str]:
    yield from pairs(
        [
            ("decode threads", _trials(result.decode, result.threads)),
            ("prefill threads", _trials(result.prefill, result.batch_threads)),
            ("ubatch", _trials(result.ubatches, result.ubatch)),
        ]
    )
    yield paint("Used from the next load on." if kept else "Nothing was kept.", "dim")


def _trials(trials: tuple[Trial, ...], chosen: int) -> str:
    return "   ".join(
        ("→ " if t.value == chosen else "") + f"{t.value}: {t.tokens_per_second:.1f} tok/s" for t in trials
    )
