"""``localllm eval``: what a quantisation loses, measured on a text before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

import click
from msgspec import Struct

from localllm.cli.arguments import complete_model
from localllm.cli.output import Column, Result, emit, paint, table
from localllm.cli.progress import ProgressLine
from localllm.cli.session import json_option
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from localllm.cli.local_model import LocalModel
    from localllm.engines.llama_cpp.lab_request import EvalResult

WARN_PERCENT = 1.0


class EvalRow(Struct, frozen=True, kw_only=True):
    """``loss_percent``: how much higher its perplexity is than the reference's."""

    model: str
    quant: str
    size_bytes: int
    perplexity: float
    perplexity_error: float
    loss_percent: float | None
    mean_kld: float | None
    kld_p99: float | None
    same_top_percent: float | None


class EvalReport(Struct, frozen=True, kw_only=True):
    reference: str
    scored_tokens: int
    windows: int
    rows: tuple[EvalRow, ...]
    warnings: tuple[str, ...]


@click.command()
@click.argument("models", nargs=-1, required=True, shell_complete=complete_model)
@click.option(
    "--text", type=click.File("r", encoding="utf-8"), required=True, help="The text to score (- = stdin)."
)
@click.option("--reference", metavar="MODEL", help="Compare with this one; unset = the largest file.")
@click.option(
    "--window", default=512, show_default=True, type=click.IntRange(32, 32_768), help="Tokens per window."
)
@click.option(
    "--windows", default=16, show_default=True, type=click.IntRange(1, 10_000), help="Windows at most."
)
@click.option(
    "--threads", type=click.IntRange(min=1), metavar="N", help="Threads; unset = what the engine takes."
)
@json_option
def command(
    models: tuple[str, ...],
    text: IO[str],
    reference: str | None,
    window: int,
    windows: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Perplexity of each of MODELS on a text, and how far each is from the reference: quants of one model, side by side.

    KLD is the mean divergence of the next-token distributions (nats); "same top" how often both would pick the same token.
    All models are in memory together. A quant that loses more than 1 % is named.
    """
    from localllm.cli.local_model import build_in_use, find_local_model, plan_for, this_machine
    from localllm.engines.llama_cpp.lab import run_eval
    from localllm.engines.llama_cpp.lab_request import EvalRequest

    names = [*models] if reference is None or reference in models else [reference, *models]
    found = [find_local_model(name) for name in dict.fromkeys(names)]
    first = _reference(found, find_local_model(reference).key if reference else None)
    ordered = [first, *(m for m in found if m is not first)]
    machine = this_machine()
    request = EvalRequest(
        plans=tuple(
            plan_for(m, machine, tokens=window, threads=threads, gpu_layers=None, kv_type="f16")
            for m in ordered
        ),
        text=text.read(),
        window_tokens=window,
        max_windows=windows,
    )
    with ProgressLine() as line:
        result = run_eval(
            request, lambda step: line.show(step.label, step.done / step.total), build_dir=build_in_use()
        )
    report = _report(ordered, result)
    emit(Result("eval", report, lambda: _lines(report)), as_json=as_json)


def _reference(models: list[LocalModel], key: str | None) -> LocalModel:
    if key is not None:
        return next(m for m in models if m.key == key)
    return max(models, key=lambda m: m.facts.size_bytes)


def _report(models: list[LocalModel], result: EvalResult) -> EvalReport:
    base = result.models[0].perplexity
    rows = tuple(
        EvalRow(
            model=model.name,
            quant=model.facts.quant,
            size_bytes=model.facts.size_bytes,
            perplexity=quality.perplexity,
            perplexity_error=quality.perplexity_error,
            loss_percent=None if index == 0 else 100.0 * (quality.perplexity / base - 1.0),
            mean_kld=quality.mean_kld,
            kld_p99=quality.kld_p99,
            same_top_percent=quality.same_top_percent,
        )
        for index, (model, quality) in enumerate(zip(models, result.models, strict=True))
    )
    warnings = tuple(
        f"{row.model} loses {row.loss_percent:.1f} % against {rows[0].model} on this text."
        for row in rows
        if row.loss_percent is not None and row.loss_percent > WARN_PERCENT
    )
    return EvalReport(
        reference=rows[0].model,
        scored_tokens=result.scored_tokens,
        windows=result.windows,
        rows=rows,
        warnings=warnings,
    )


def _lines(report: EvalReport) -> Iterator[str]:
    from localllm.core.units import format_bytes

    columns = [
        Column("model"),
        Column("quant"),
        Column("file", right=True),
        Column("perplexity", right=True),
        Column("loss", right=True),
        Column("KLD", right=True),
        Column("KLD p99", right=True),
        Column("same top", right=True),
    ]
    rows = [
        (
            row.model,
            row.quant,
            format_bytes(row.size_bytes),
            f"{row.perplexity:.3f} ± {row.perplexity_error:.3f}",
            "reference" if row.loss_percent is None else f"{row.loss_percent:+.2f} %",
            None if row.mean_kld is None else f"{row.mean_kld:.4f}",
            None if row.kld_p99 is None else f"{row.kld_p99:.3f}",
            None if row.same_top_percent is None else f"{row.same_top_percent:.1f} %",
        )
        for row in report.rows
    ]
    yield from table(columns, rows)
    yield paint(f"{report.scored_tokens} tokens scored in {report.windows} windows.", "dim")
    for warning in report.warnings:
        yield paint("Warning: ", "yellow") + clean_text(warning)
