"""What both halves of ``benchmarks.planner`` report: figures with their goals, and rows that could not be judged."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from msgspec import Struct

Report = Callable[[str], None] | None


class Figure(Struct, frozen=True):
    """``met``: None when there is no goal or no value; ``note`` says why a value is missing."""

    name: str
    value: float | int | None
    unit: str
    goal: str | None = None
    met: bool | None = None
    note: str | None = None


class Lacking:
    """Rows without a needed figure, by what could not be judged: counted and named, never dropped in silence."""

    def __init__(self) -> None:
        self._rows: dict[str, list[str]] = {}

    def add(self, what: str, row: str, why: str) -> None:
        self._rows.setdefault(what, []).append(f"{row}: {why}")

    def summary(self) -> dict[str, dict[str, object]]:
        return {what: {"count": len(rows), "rows": rows} for what, rows in self._rows.items()}


def at_most(name: str, value: float | None, unit: str, limit: float, note: str | None = None) -> Figure:
    met = None if value is None else value <= limit
    return Figure(name, _rounded(value), unit, f"<= {limit:g}", met, note)


def at_least(name: str, value: float | None, unit: str, limit: float, note: str | None = None) -> Figure:
    met = None if value is None else value >= limit
    return Figure(name, _rounded(value), unit, f">= {limit:g}", met, note)


def plain(name: str, value: float | None, unit: str, note: str | None = None) -> Figure:
    return Figure(name, _rounded(value), unit, note=note)


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The value that ``percent`` of all values do not exceed (nearest rank); None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(percent) // 100) - 1)]


def _rounded(value: float | None) -> float | int | None:
    return round(value, 4) if isinstance(value, float) else value
