"""How right the planner is: its estimates against a file of measured loads or speeds.

    python -m benchmarks.planner FILE [--json] [--rows]

``FILE`` is a memory truth (``.jsonl``: one load log a line) or a speed truth (``.csv``: one measurement a line). Each
figure is printed for the closed formulas and, with a ``sim_`` prefix, for the simulation through llama-cpp-python
(null with its reason where that is not installed). Rows that lack what an estimate needs are counted and named.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.planner_memory import measure_memory
from benchmarks.planner_speed import measure_speed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="a memory truth (.jsonl) or a speed truth (.csv)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rows", action="store_true", help="every row with its errors, on stderr")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    measure = measure_memory if options.file.suffix == ".jsonl" else measure_speed
    figures, runs = measure(options.file, report=_to_stderr if options.rows else None)
    result = {
        "figures": figures,
        "runs": {**runs, "file": options.file.name, "seconds": round(time.perf_counter() - began, 2)},
        "machine": {"system": platform.platform(), "python": platform.python_version()},
    }
    encoded = msgspec.json.encode(result)
    print((encoded if options.json else msgspec.json.format(encoded)).decode())
    return 0


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
