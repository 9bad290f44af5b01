"""A llama_context without a model: it keeps what every sequence holds and "computes" by looking at it.

The next token of a sequence is a function of all its tokens, so a wrong position, a missing copy or a cut too many
changes the answer. Anything llama.cpp would refuse or abort on fails an assertion here.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from localllm.engines.llama_cpp.pool import MemoryKind

VOCABULARY = 64
END = 0


def next_token(tokens: Sequence[int], *, never_ends: bool = True) -> int:
    """What this model says after ``tokens``."""
    value = zlib.crc32(bytes(np.array(tokens, np.int32)))
    return 1 + value % (VOCABULARY - 1) if never_ends else value % VOCABULARY


def continuation(prompt: Sequence[int], count: int) -> list[int]:
    """``count`` tokens, one after the other: what any scheduling must come to."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


class FakeBatch:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0
        self.rows: list[tuple[int, int, int, bool]] = []

    def clear(self) -> None:
        self.count = 0
        self.rows = []

    def put(self, sequence: int, tokens: NDArray[np.int32], position: int, outputs: int) -> None:
        for index, token in enumerate(tokens.tolist()):
            self.rows.append((sequence, token, position + index, index >= len(tokens) - outputs))
        self.count += len(tokens)
        assert self.count <= self.capacity


class FakeContext:
    """``statuses`` are what the next calls of ``decode`` return instead of working (0 = work)."""

    def __init__(
        self,
        *,
        sequences: int = 8,
        cells: int = 4096,
        batch: int = 512,
        max_outputs: int = 40,
        kind: MemoryKind = MemoryKind.FULL,
        window: int = 0,
    ) -> None:
        self.sequences = sequences
        self.cells = cells
        self.max_outputs = max_outputs
        self.kind = kind
        self.window = window
        self.batch = FakeBatch(batch)
        self.held: list[list[int]] = [[] for _ in range(sequences)]
        self.first: list[int] = [0] * sequences
        self.shared: list[dict[int, int]] = [{} for _ in range(sequences)]
        self.statuses: list[int] = []
        self.steps: list[list[tuple[int, int, int, bool]]] = []
        self.poison: set[int] = set()
        self.on_decode: Callable[[int], None] = lambda tokens: None
        self._cell = 0
        self._logits = np.zeros((max_outputs, VOCABULARY), np.float32)

    def used(self) -> int:
        """Distinct cells."""
        return len({cell for cells in self.shared for cell in cells.values()})

    def decode(self) -> int:
        status = self.statuses.pop(0) if self.statuses else 0
        if status == 2 or status < -1:  # stopped partway
            for sequence, token, position, _ in self.batch.rows[: self.batch.count // 2]:
                self._hold(sequence, token, position)
        if status:
            return status
        if self.used() + self.batch.count > self.cells:
            return 1
        if any(token in self.poison for _, token, _, _ in self.batch.rows):
            return -2
        self.on_decode(self.batch.count)
        self.steps.append(list(self.batch.rows))
        row = 0
        for sequence, token, position, wants in self.batch.rows:
            self._hold(sequence, token, position)
            if wants:
                self._logits[row] = 0
                self._logits[row, next_token(self.held[sequence])] = 10
                row += 1
        for sequence in {row[0] for row in self.batch.rows}:
            if self.window:
                self.first[sequence] = max(self.first[sequence], len(self.held[sequence]) - 2 * self.window)
        assert row <= self.max_outputs
        return 0

    def _hold(self, sequence: int, token: int, position: int) -> None:
        assert position == len(self.held[sequence]), "positions must follow each other"
        self.held[sequence].append(token)
        self.shared[sequence][position] = self._cell
        self._cell += 1

    def logits(self, rows: int) -> NDArray[np.float32]:
        return self._logits[:rows]

    def remove(self, sequence: int, start: int = 0) -> bool:
        if self.kind is MemoryKind.EXACT and 0 < start < len(self.held[sequence]):
            return False
        del self.held[sequence][start:]
        self.shared[sequence] = {p: c for p, c in self.shared[sequence].items() if p < start}
        if not start:
            self.first[sequence] = 0
        return True

    def copy(self, source: int, target: int, length: int) -> None:
        assert not self.held[target], "the target must be empty"
        assert 0 < length <= len(self.held[source])
        if self.kind is MemoryKind.EXACT:
            assert length == len(self.held[source]), "a state cannot be copied in part"
        if self.window:
            assert self.first[source] <= max(0, length - self.window), "the window below the cut is gone"
        self.held[target] = self.held[source][:length]
        self.first[target] = self.first[source]
        self.shared[target] = {p: c for p, c in self.shared[source].items() if p < length}

    def first_position(self, sequence: int) -> int:
        return self.first[sequence] if self.held[sequence] else -1
