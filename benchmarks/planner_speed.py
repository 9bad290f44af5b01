"""The speed half of ``benchmarks.planner``: measured decode rates against the planner's estimate and its range.

The planner estimates what llama.cpp's own benchmark would show on an idle machine. Many rows were measured
otherwise, and what is known about that is applied to the estimate first (``_Method``): a server samples and streams
each token, and llamafile brings its own, older kernels.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from benchmarks.planner_figures import Figure, Lacking, Report, at_least, at_most, median, percentile
from localllm.core.budget import Budget
from localllm.core.derive import facts_from_figures
from localllm.core.device_table import DeviceClass, DeviceRow, match_device
from localllm.core.facts import ModelFacts
from localllm.core.known_models import KnownModel, find_known_model, parse_known_models
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device, DeviceKind
from localllm.core.memory import CPU_ID, Estimator
from localllm.core.pace import Pace, generation_of, pace_of_row
from localllm.core.placement import CPU, Placement, place
from localllm.core.quant import base_name
from localllm.core.quant_mix import known_mix
from localllm.core.search import Search
from localllm.core.speed import SpeedEstimate, estimate_from_paces
from localllm.hardware.assets import asset_path
from localllm.hardware.devices import load_device_table

TIERS: Final = ("A", "B")
UNKNOWN_HOST: Final = "CPU DDR5-5600 dual channel"
"""Host of a graphics card when a row does not name it."""

ASSUMED_CONTEXT: Final = 4_096
GIB: Final = 1 << 30

_CARD_MAKERS = re.compile(r"nvidia|amd|intel arc|geforce|radeon", re.IGNORECASE)
_IN_PARENTHESES = re.compile(r"\(([^)]*)\)")


class Row(Struct, frozen=True, kw_only=True):
    """One measurement; empty cells are None."""

    device: str
    backend: str
    model: str
    quant: str | None
    tokens_per_second: float
    test: str
    depth: int
    tier: str
    note: str


class _Method(Struct, frozen=True):
    """How a row was measured, as a correction of the time per token: seconds × factor + overhead."""

    factor: float = 1.0
    overhead_s: float = 0.0

    def applied(self, tokens_per_second: float) -> float:
        return 1 / (self.factor / tokens_per_second + self.overhead_s)


def measure_speed(path: Path, *, report: Report = None) -> tuple[list[Figure], dict[str, object]]:
    """All speed figures over a truth file, tiers A and B."""
    known = parse_known_models(asset_path("known_models.jsonl").read_text(encoding="utf-8"))
    table = load_device_table()
    lacking = Lacking()
    rows = _rows(path, lacking)
    errors: list[float] = []
    inside: list[bool] = []
    for number, row in rows:
        label = f"{number} {row.device} / {row.model}"
        estimate = _estimate(row, label, known, table, lacking)
        if estimate is None:
            continue
        method = _method_of(row)
        decode = method.applied(estimate.decode)
        low, high = method.applied(estimate.decode_low), method.applied(estimate.decode_high)
        error = (decode / row.tokens_per_second - 1) * 100
        errors.append(abs(error))
        inside.append(low <= row.tokens_per_second <= high)
        if report is not None:
            mark = "" if inside[-1] else " OUT"
            report(
                f"{label}: {decode:.1f} [{low:.1f}…{high:.1f}] / {row.tokens_per_second} ({error:+.0f} %){mark}"
            )
    share = 100 * sum(inside) / len(inside) if inside else None
    reason = "the simulation sizes memory; it has nothing to say about speed"
    figures = [
        at_most("speed_median_error_percent", median(errors), "%", 15),
        at_most("speed_p90_error_percent", percentile(errors, 90), "%", 35),
        at_least("speed_in_range_percent", share, "%", 90),
        at_most("sim_speed_median_error_percent", None, "%", 15, reason),
        at_most("sim_speed_p90_error_percent", None, "%", 35, reason),
        at_least("sim_speed_in_range_percent", None, "%", 90, reason),
    ]
    return figures, {"rows": len(rows), "judged": len(errors), "lacking": lacking.summary()}


def _rows(path: Path, lacking: Lacking) -> list[tuple[int, Row]]:
    found: list[tuple[int, Row]] = []
    with path.open(encoding="utf-8", newline="") as file:
        for number, cells in enumerate(csv.DictReader(file), start=1):
            if cells["tier"] not in TIERS:
                continue
            rate = _number(cells["tg128"])
            if rate is None:
                lacking.add("speed", f"{number} {cells['device']} / {cells['model']}", "no rate measured")
                continue
            found.append(
                (
                    number,
                    Row(
                        device=cells["device"],
                        backend=cells["backend"],
                        model=cells["model"],
                        quant=cells["quant"] or None,
                        tokens_per_second=rate,
                        test=cells["tg_test"],
                        depth=int(cells["depth"]) if cells["depth"].isdigit() else 0,
                        tier=cells["tier"],
                        note=cells["note"],
                    ),
                )
            )
    return found


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


# ---------------------------------------------------------------- understanding a row


def _estimate(
    row: Row,
    label: str,
    known: tuple[KnownModel, ...],
    table: tuple[DeviceRow, ...],
    lacking: Lacking,
) -> SpeedEstimate | None:
    if row.tokens_per_second <= 0:
        lacking.add("speed", label, "no rate measured")
        return None
    if "SUSPECT" in row.note:
        lacking.add("speed", label, "the row's own note doubts it")
        return None
    if "split tensor" in row.device:
        lacking.add("speed", label, "tensor parallelism is not planned for")
        return None
    facts = _facts(row, known)
    if facts is None:
        lacking.add("speed", label, "the model's figures are not known")
        return None
    device = _device_row(row, table)
    if device is None:
        lacking.add("speed", label, "the device is not in the table")
        return None
    host = _host_row(row, table)
    placement, paces = _placed(row, facts, device, host)
    plan = LaunchPlan(
        model_path="", context_length=max(ASSUMED_CONTEXT, row.depth), gpu_layers=facts.total_layers
    )
    return estimate_from_paces(facts, plan, placement, paces, depth=row.depth)


def _facts(row: Row, known: tuple[KnownModel, ...]) -> ModelFacts | None:
    model = find_known_model(row.model, known)
    quant = row.quant or "Q4_K_M"
    if model is None:
        return None
    if model.figures.architecture == "gpt-oss":
        quant = "MXFP4_MOE"  # published in this type only
    quant = quant.upper() if known_mix(quant.upper()) else base_name(quant)
    return facts_from_figures(model.figures, quant) if known_mix(quant) else None


def _device_row(row: Row, table: tuple[DeviceRow, ...]) -> DeviceRow | None:
    """The card in parentheses (``Pi 5 (AMD RX 6700 XT)``) before the machine around it."""
    for inner in _IN_PARENTHESES.findall(row.device):
        card = match_device(inner, table)
        if card is not None and _CARD_MAKERS.search(inner):
            return card
    return match_device(row.device, table)


def _host_row(row: Row, table: tuple[DeviceRow, ...]) -> DeviceRow:
    name = "Raspberry Pi 5" if re.search(r"\bpi\b", row.device, re.IGNORECASE) else UNKNOWN_HOST
    return next(device for device in table if device.name == name)


def _placed(
    row: Row, facts: ModelFacts, device: DeviceRow, host: DeviceRow
) -> tuple[Placement, dict[int, Pace]]:
    """All on the device, or what fits of it: then the rest is the host's."""
    everything = Placement((0,) * facts.n_layer, 0, 0)
    pace = pace_of_row(device)
    if device.device_class is DeviceClass.CPU:
        return Placement((CPU,) * facts.n_layer, CPU, 0), {CPU: pace}
    shared = device.device_class is DeviceClass.UNIFIED or device.memory_bytes is None
    if shared or re.match(r"\d+x ", row.device):
        return everything, {0: pace}
    card = Device(
        id="card",
        kind=DeviceKind.GPU,
        name=device.name,
        backend="cuda" if device.vendor == "NVIDIA" else "vulkan",
        total_bytes=device.memory_bytes,
        free_bytes=device.memory_bytes,
        margin_bytes=1 << 30,  # these are people's desktops
    )
    budget = Budget({"card": card.usable_bytes, CPU_ID: 1 << 50}, frozenset())
    base = LaunchPlan(model_path="", context_length=ASSUMED_CONTEXT, gpu_layers=facts.total_layers)
    search = Search(Estimator(facts, (card,)), budget, base)
    found = search.try_plan(base) or search.partial(base.context_length, 1)
    if found is None or found.plan == base:
        return everything, {0: pace}
    return place(facts, found.plan, (1.0,)), {0: pace, CPU: pace_of_row(host)}


# ---------------------------------------------------------------- how it was measured

_LLAMAFILE: Final[tuple[tuple[Callable[[str], bool], _Method], ...]] = (
    # no native kernels for these yet in 2025: what runs is recompiled from an older target
    (lambda name: generation_of(name).name == "Blackwell", _Method(3.2, 0.004)),
    (lambda name: re.search(r"\b(h100|h200)\b", name.lower()) is not None, _Method(5.0, 0.004)),
    (lambda name: re.search(r"\bl40s?\b", name.lower()) is not None, _Method(2.8, 0.004)),
    (lambda name: generation_of(name).name == "Turing without tensor cores", _Method(5.0, 0.003)),
    (lambda name: generation_of(name).name.startswith(("RDNA", "GCN")), _Method(1.4, 0.004)),
    (lambda name: name.startswith("Apple"), _Method(1.12, 0.0012)),
    (lambda name: True, _Method(1.08, 0.0008)),
)


def _method_of(row: Row) -> _Method:
    if row.backend == "llamafile":
        return next(method for applies, method in _LLAMAFILE if applies(row.device))
    on_pi = re.search(r"\bpi\b", row.device, re.IGNORECASE) is not None
    if on_pi and re.search(r"amd|intel", row.device, re.IGNORECASE):
        return _Method(1.8, 0.002)  # Vulkan over one PCIe lane, driven by slow cores
    if "eval rate" in row.test or row.test.startswith("avg of"):
        return _Method(1.0, 0.0004)  # sampling and streaming each token
    return _Method()
