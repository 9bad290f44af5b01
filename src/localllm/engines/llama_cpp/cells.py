"""Counts the cells of a unified KV cache: sequences that share a prefix share its cells.

llama.cpp does not say how many cells are in use. This ledger repeats what it does: a copy adds an owner to cells, a
removal takes one away, and a cell is free when nobody owns it.
"""

from __future__ import annotations

from collections.abc import Iterable


class _Run:
    """Consecutive positions whose cells have the same owners."""

    __slots__ = ("length", "owners")

    def __init__(self, length: int, owners: int = 1) -> None:
        self.length = length
        self.owners = owners


class CellLedger:
    """Cells by sequence; every operation mirrors one on ``Context``."""

    def __init__(self, total: int, sequences: int) -> None:
        self.total = total
        self.used = 0
        self._runs: list[list[_Run]] = [[] for _ in range(sequences)]

    @property
    def free(self) -> int:
        return self.total - self.used

    def length(self, sequence: int) -> int:
        return sum(run.length for run in self._runs[sequence])

    def own(self, sequence: int) -> int:
        """Cells that would become free if this sequence went away."""
        return sum(run.length for run in self._runs[sequence] if run.owners == 1)

    def held(self, sequences: Iterable[int]) -> int:
        """Distinct cells that any of ``sequences`` owns."""
        runs = {id(run): run for sequence in sequences for run in self._runs[sequence]}
        return sum(run.length for run in runs.values())

    def grow(self, sequence: int, count: int) -> None:
        runs = self._runs[sequence]
        if runs and runs[-1].owners == 1:
            runs[-1].length += count
        else:
            runs.append(_Run(count))
        self.used += count

    def cut(self, sequence: int, length: int) -> None:
        """Keep only the first ``length`` positions."""
        self._split(sequence, length)
        runs = self._runs[sequence]
        position = 0
        for index, run in enumerate(runs):
            if position >= length:
                for gone in runs[index:]:
                    self._disown(gone)
                del runs[index:]
                return
            position += run.length

    def share(self, source: int, target: int, length: int) -> None:
        """Let the empty ``target`` own the first ``length`` positions of ``source`` too."""
        self._split(source, length)
        position = 0
        for run in self._runs[source]:
            if position >= length:
                return
            run.owners += 1
            self._runs[target].append(run)
            position += run.length

    def _disown(self, run: _Run) -> None:
        run.owners -= 1
        if not run.owners:
            self.used -= run.length

    def _split(self, sequence: int, length: int) -> None:
        """Let a run end at ``length``, in every sequence that owns the run across it."""
        position = 0
        for run in self._runs[sequence]:
            if position < length < position + run.length:
                rest = _Run(position + run.length - length, run.owners)
                run.length = length - position
                for runs in self._runs:
                    if run in runs:
                        runs.insert(runs.index(run) + 1, rest)
                return
            position += run.length
