"""Lines about models: the row of the list, the facts above the fit table, and what is being done right now."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content

from localllm.core.control import (
    FitRow,
    FitTable,
    InstancePhase,
    InstanceState,
    ModelSummary,
    Task,
    TaskPhase,
    Verdict,
)
from localllm.core.units import format_bytes, format_count
from localllm.tui import figures, plots
from localllm.tui.widgets.line import clipped, text
from localllm.tui.widgets.table import Column, Meter, Row

MODEL_COLUMNS = (
    Column("mark", "", 1, 10),
    Column("name", "model", 10, 10, grow=True),
    Column("quant", "quant", 8, 4),
    Column("size", "size", 6, 6, right=True),
)

FIT_COLUMNS = (
    Column("mark", "", 1, 10),
    Column("quant", "quant", 7, 10),
    Column("verdict", "verdict", 9, 9),
    Column("need", "need", 6, 8, right=True),
    Column("longest", "max ctx", 7, 7, right=True),
    Column("speed", "tok/s", 5, 7, right=True),
    Column("file", "file", 6, 6, right=True),
    Column("kv", "KV", 5, 5, right=True),
    Column("compute", "buffers", 7, 4, right=True),
    Column("quality", "quality", 16, 3),
    Column("bar", "of budget", 10, 2, grow=True),
)

_VERDICT = {
    Verdict.FITS: ("fits", "$success"),
    Verdict.TIGHT: ("tight", "$warning"),
    Verdict.PARTIAL: ("partial", "$warning"),
    Verdict.NO: ("no", "$error"),
}

_PHASE_MARK = {
    InstancePhase.LOADING: ("◌", "$warning"),
    InstancePhase.READY: ("●", "$success"),
    InstancePhase.BUSY: ("●", "$success"),
    InstancePhase.DRAINING: ("◌", "$warning"),
    InstancePhase.UNLOADING: ("◌", "$warning"),
    InstancePhase.CRASHED: ("✗", "$error"),
    InstancePhase.QUARANTINED: ("✗", "$error"),
}


def phase_mark(instance: InstanceState | None) -> Content:
    """One cell that says how an instance is; a blank for a model that is not loaded."""
    return text(_PHASE_MARK[instance.phase]) if instance is not None else text(" ")


def model_row(model: ModelSummary, instances: Mapping[str, InstanceState]) -> Row:
    """The list's line of one model; another program's file says whose it is."""
    name = text((model.name, "$error" if model.problem else ""))
    if model.owner != "localllm":
        name = name + text((f"  {model.owner}", "$quiet"))
    return Row(
        model.name,
        {
            "mark": phase_mark(instances.get(model.name)),
            "name": name,
            "quant": text((model.quant or figures.UNKNOWN, "$quiet")),
            "size": figures.size(model.size_bytes),
        },
    )


def headline(model: ModelSummary) -> Content:
    """Architecture, size and abilities in one line."""
    parts = []
    if model.parameters:
        parts.append(f"{format_count(model.parameters)} parameters")
    if model.architecture:
        parts.append(model.architecture)
    if model.trained_context_length:
        parts.append(f"trained for {figures.context(model.trained_context_length)}")
    parts += list(model.capabilities)
    if model.problem:
        return text((model.problem, "$error"))
    return text((" · ".join(parts), "$quiet"))


def budget_line(table: FitTable) -> Content:
    """Which device the rows were computed for, and how much of it may be used."""
    budget = table.rows[0].budget_bytes if table.rows else None
    may = f"{format_bytes(budget)} to use" if budget is not None else ""
    return text((table.device, "bold"), (f"  {may}", "$quiet"))


def fit_row(row: FitRow) -> Row:
    """One quant: what it needs against the budget, and what it would give."""
    words, colour = _VERDICT[row.verdict]
    if row.verdict is Verdict.PARTIAL and row.gpu_layers is not None:
        words = f"{row.gpu_layers}/{row.total_layers} GPU"
    share = figures.share(row.total_bytes, row.budget_bytes) or 0.0
    mark = text(("★", "$accent")) if row.recommended else text(("●", "$quiet") if row.here else " ")
    return Row(
        row.quant,
        {
            "mark": mark,
            "quant": text((row.quant, "bold" if row.here else "")),
            "verdict": text((words, colour)),
            "need": figures.size(row.total_bytes),
            "longest": figures.context(row.longest_context),
            "speed": figures.speed(row.decode_tokens_per_second),
            "file": text((figures.size(row.file_bytes), "$quiet")),
            "kv": text((figures.size(row.kv_bytes), "$quiet")),
            "compute": text((figures.size(row.compute_bytes), "$quiet")),
            "bar": Meter(share, colour),
            "quality": text((row.quality or "", "$quiet")),
        },
    )


def stack_line(row: FitRow, width: int) -> Content:
    """Weights, KV cache and buffers of one quant as one bar; its end is the budget, or the need where that is more."""
    rest = row.compute_bytes + row.overhead_bytes
    whole = max(row.budget_bytes, row.total_bytes, 1)
    cells = max(8, width)
    parts = text()
    for bytes_, colour in ((row.weights_bytes, "$accent"), (row.kv_bytes, "$secondary"), (rest, "$warning")):
        count = min(cells - parts.cell_length, max(1 if bytes_ else 0, round(bytes_ / whole * cells)))
        parts = parts + text(("━" * count, colour))
    return parts + text(("─" * (cells - parts.cell_length), "$line"))


def stack_legend(row: FitRow) -> Content:
    """What the colours of `stack_line` are, in GiB."""
    over = row.total_bytes > row.budget_bytes
    return text(
        ("weights ", "$accent"),
        figures.gib(row.weights_bytes),
        ("  KV ", "$secondary"),
        figures.gib(row.kv_bytes),
        ("  buffers ", "$warning"),
        figures.gib(row.compute_bytes + row.overhead_bytes),
        ("  = ", "$quiet"),
        (figures.gib(row.total_bytes), "$error" if over else "bold"),
        (f" of {figures.gib(row.budget_bytes)}", "$quiet"),
    )


def row_words(row: FitRow) -> Content:
    """What else is known of one quant: quality, the speed's range and reason, why it is advised or not."""
    parts = []
    if row.quality:
        parts.append(row.quality)
    if row.decode_low is not None and row.decode_high is not None:
        parts.append(f"{row.decode_low:.0f} to {row.decode_high:.0f} tok/s")
    parts += [words for words in (row.speed_reason, row.reason) if words]
    return text((row.quant, "bold"), ("  " + " · ".join(parts), "$quiet"))


def task_line(task: Task, width: int) -> Content:
    """A task that is not over, in two rows: what, then a bar, how far, how fast, how long yet."""
    title = text((f"{task.kind} ", "$quiet"), clipped(task.title, max(8, width - len(task.kind) - 1)))
    if task.phase is TaskPhase.FAILED:
        return title + text((f"\n✗ {task.error or 'failed'}", "$error"))
    share = figures.share(task.done, task.total)
    full, empty = plots.bar(share or 0.0, max(4, min(12, width - 20)))
    parts = title + text("\n", (full, "$accent"), (empty, "$line"))
    if share is not None:
        parts = parts + text(f" {share * 100:.0f} %")
    if task.phase is not TaskPhase.RUNNING:
        return parts + text((f" {task.phase.value}", "$warning"))
    if task.rate_bytes_per_second:
        parts = parts + text((f" {figures.size(int(task.rate_bytes_per_second))}/s", "$quiet"))
    if task.eta_seconds is not None:
        parts = parts + text((f" {figures.lasting(task.eta_seconds)}", "$quiet"))
    elif task.stage:
        parts = parts + text((f" {task.stage}", "$quiet"))
    return parts
