"""``localllm bench``: how fast a model really is here, kept so that estimates learn and an update's cost is seen."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import click
from msgspec import Struct

from localllm.cli.arguments import model_argument
from localllm.cli.output import Result, emit, paint, pairs
from localllm.cli.progress import ProgressLine
from localllm.cli.session import json_option
from localllm.engines.measurements import Change, Measurement


class BenchReport(Struct, frozen=True, kw_only=True):
    """What ``--json`` prints: this measurement, each repetition, and the one it was compared with."""

    measurement: Measurement
    prefill_runs: tuple[float, ...]
    decode_runs: tuple[float, ...]
    change: Change | None


@click.command()
@model_argument
@click.option("-p", "--prompt-tokens", default=512, show_default=True, type=click.IntRange(1, 1 << 20))
@click.option("-n", "--generated-tokens", default=128, show_default=True, type=click.IntRange(1, 1 << 16))
@click.option(
    "-d", "--depth", default=0, show_default=True, type=click.IntRange(0, 1 << 20), help="Tokens before."
)
@click.option("-r", "--repetitions", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="Threads; unset = what the engine takes."
)
@click.option("--gpu-layers", type=click.IntRange(min=0), metavar="N", help="Layers on the GPU; 0 = none.")
@click.option("--kv-type", default="f16", show_default=True, help="Type of the KV cache.")
@json_option
def command(
    model: str,
    prompt_tokens: int,
    generated_tokens: int,
    depth: int,
    repetitions: int,
    threads: int | None,
    gpu_layers: int | None,
    kv_type: str,
    as_json: bool,
) -> None:
    """Measure MODEL like llama-bench: prefill of 512 tokens (pp512) and decoding of 128 (tg128), after a warm-up.

    The medians are kept; from then on they stand where an estimate stood, and a run that is more than 10 % slower than the
    last one on the same setting says so.
    """
    from localllm.cli.local_model import build_in_use, find_local_model, plan_for, this_machine
    from localllm.engines.llama_cpp.lab import run_bench
    from localllm.engines.llama_cpp.lab_request import BenchRequest
    from localllm.engines.measurements import MeasurementFile, compare
    from localllm.settings.paths import resolve_paths

    found, machine = find_local_model(model), this_machine()
    tokens = depth + max(prompt_tokens, generated_tokens) + 8
    plan = plan_for(found, machine, tokens=tokens, threads=threads, gpu_layers=gpu_layers, kv_type=kv_type)
    request = BenchRequest(
        plan=plan,
        prompt_tokens=prompt_tokens,
        generated_tokens=generated_tokens,
        depth=depth,
        repetitions=repetitions,
    )
    with ProgressLine() as line:
        result = run_bench(
            request,
            lambda step: line.show(f"{found.name}: {step.label}", step.done / step.total),
            build_dir=build_in_use(),
        )
    device = machine.gpus[0] if plan.gpu_layers and machine.gpus else machine.cpu
    measurement = Measurement(
        at=time.time(),
        model=found.name,
        model_key=found.key,
        quant=found.facts.quant,
        device=device.name,
        backend=device.backend or "cpu",
        engine="llama_cpp",
        build=result.engine_version,
        threads=plan.threads,
        gpu_layers=plan.gpu_layers,
        kv_type=kv_type,
        prompt_tokens=prompt_tokens,
        generated_tokens=generated_tokens,
        depth=depth,
        prefill_tokens_per_second=statistics.median(result.prefill_tokens_per_second),
        decode_tokens_per_second=statistics.median(result.decode_tokens_per_second),
    )
    file = MeasurementFile(resolve_paths().measurements_file)
    change = compare(file.read(), measurement)
    file.append(measurement)
    report = BenchReport(
        measurement=measurement,
        prefill_runs=result.prefill_tokens_per_second,
        decode_runs=result.decode_tokens_per_second,
        change=change,
    )
    emit(Result("bench", report, lambda: _lines(report)), as_json=as_json)


def _lines(report: BenchReport) -> Iterator[str]:
    measured = report.measurement
    deep = f" @ {measured.depth}" if measured.depth else ""
    yield paint(f"{measured.model} on {measured.device}", "bold")
    yield from pairs(
        [
            (
                f"pp{measured.prompt_tokens}{deep}",
                _rate(measured.prefill_tokens_per_second, report.prefill_runs),
            ),
            (
                f"tg{measured.generated_tokens}{deep}",
                _rate(measured.decode_tokens_per_second, report.decode_runs),
            ),
            ("threads", str(measured.threads) if measured.threads else None),
            ("GPU layers", str(measured.gpu_layers) if measured.gpu_layers else None),
            ("engine", f"{measured.engine} {measured.build}"),
        ]
    )
    if report.change is not None:
        yield _comparison(report.change)


def _rate(median: float, runs: tuple[float, ...]) -> str:
    return f"{median:.1f} tok/s  ({min(runs):.1f}–{max(runs):.1f} over {len(runs)})"


def _comparison(change: Change) -> str:
    then = time.strftime("%Y-%m-%d", time.localtime(change.before.at))
    text = f"Against {then}: prefill {change.prefill_ratio:.2f}×, decode {change.decode_ratio:.2f}×."
    if not change.slower:
        return text
    update = f" since {change.before.build} → {change.after.build}" if change.build_changed else ""
    return paint("Slower", "yellow") + f"{update}. {text}"
