"""What every benchmark shares: how its figures are judged and printed, and where they were taken.

A figure compares two things in one run, in turns: on a machine that others use too, a speed alone means little.
"""

from __future__ import annotations

import operator
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import psutil

_JUDGES: dict[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Goal:
    """``Goal("<=", 3)``: at most three."""

    relation: str
    value: float

    def met(self, value: float) -> bool:
        return _JUDGES[self.relation](value, self.value)

    def __str__(self) -> str:
        return f"{self.relation} {self.value:g}"


class Figure(msgspec.Struct, frozen=True):
    """``goal`` None: told for orientation, not judged."""

    name: str
    value: float
    unit: str
    goal: str | None
    met: bool | None


def figure(name: str, value: float, unit: str, goal: Goal | None = None) -> Figure:
    met = goal.met(value) if goal is not None else None
    return Figure(name, value, unit, str(goal) if goal is not None else None, met)


def machine_info() -> dict[str, object]:
    """Enough to judge whether two runs can be compared."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "logical_cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def print_figures(figures: list[Figure], runs: Mapping[str, object], *, as_json: bool) -> None:
    """One object on stdout, or one line per figure."""
    if as_json:
        report = {"figures": figures, "runs": runs, "machine": machine_info()}
        print(msgspec.json.encode(report).decode())
        return
    for one in figures:
        verdict = "" if one.goal is None else f"  goal {one.goal}: {'met' if one.met else 'MISSED'}"
        print(f"{one.name:36} {one.value:10.3f} {one.unit}{verdict}")
