"""The sequences of a KV cache: who uses which, what idle ones remember, and what a new prompt can take over.

A sequence is *live* while an answer uses it and *idle* afterwards: its tokens stay in the cache as somebody's prefix
until the room or the number is needed (least recently used first). A prompt takes its longest known prefix by cutting
an idle sequence back or by copying; from a live one it copies what is computed, and may be told to wait for what is
just being computed. What a memory can do differs (``MemoryKind``), and what it cannot is never tried.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from localllm.engines.llama_cpp.cells import CellLedger
from localllm.engines.llama_cpp.prefix import PrefixTree

_CHECKPOINT_FROM = 64
_CHECKPOINT_BEFORE_END = 8
"""An exact memory is copied this many tokens before a prompt ends: the next turn's prompt parts from this one about
there, where the template opens the answer."""
_WORTH_WAITING = 32
"""Tokens that must be in the making elsewhere before a prompt waits for them instead of computing them."""

Tokens = NDArray[np.int32]


class MemoryKind(Enum):
    """FULL can be cut anywhere. WINDOW only where its sliding window is still held. EXACT (recurrent, hybrid) never:
    a state belongs to exactly the tokens it has seen."""

    FULL = "full"
    WINDOW = "window"
    EXACT = "exact"


class Memory(Protocol):
    """What the pool asks of a context."""

    def remove(self, sequence: int, start: int = 0) -> bool: ...
    def copy(self, source: int, target: int, length: int) -> None: ...
    def first_position(self, sequence: int) -> int: ...


class Source(Struct, frozen=True):
    """Where a prompt's first ``length`` tokens come from (0: nowhere, ``sequence`` None)."""

    sequence: int | None
    length: int
    live: bool = False


class Wait(Struct, frozen=True):
    """A live ``sequence`` will soon have the prompt's first ``length`` tokens."""

    sequence: int
    length: int


class _Sequence:
    __slots__ = ("checkpoint", "computed", "live", "stops", "tokens", "used_at")

    def __init__(self) -> None:
        self.checkpoint: int | None = None
        self.tokens: Tokens = np.empty(0, np.int32)
        self.computed = 0
        self.live = False
        self.used_at = 0
        self.stops: set[int] = set()


class SequencePool:
    """``sequences`` numbers over ``cells`` cells; ``window`` is the sliding window in tokens (WINDOW only)."""

    def __init__(
        self,
        memory: Memory,
        *,
        sequences: int,
        cells: int,
        kind: MemoryKind,
        window: int = 0,
        can_copy: bool = True,
    ) -> None:
        self._memory = memory
        self._kind = kind
        self._window = window
        self._can_copy = can_copy
        self._all = [_Sequence() for _ in range(sequences)]
        self._tree = PrefixTree()
        self.cells = CellLedger(cells, sequences)
        self._clock = 0

    @property
    def kind(self) -> MemoryKind:
        return self._kind

    def live(self) -> list[int]:
        return [number for number, sequence in enumerate(self._all) if sequence.live]

    def idle(self) -> list[int]:
        """Sequences that only remember, least recently used first."""
        remembered = [n for n, sequence in enumerate(self._all) if not sequence.live and sequence.computed]
        return sorted(remembered, key=lambda number: self._all[number].used_at)

    def held_by_live(self) -> int:
        """Cells that cannot be had by forgetting idle sequences."""
        return self.cells.held(self.live())

    # ------------------------------------------------------------ finding a prefix

    def find(self, tokens: Tokens) -> Source | Wait:
        """The longest prefix of ``tokens`` that can be had now, or the one worth waiting for.

        At least one token is left to compute, since logits are not kept.
        """
        most = len(tokens) - 1
        best = Source(None, 0)
        coming = Wait(-1, 0)
        for number, common in self._tree.match(tokens):
            sequence = self._all[number]
            wanted = min(common, most)
            if wanted <= best.length:
                break
            length = self._lendable(number, wanted)
            if length > best.length:
                best = Source(number, length, sequence.live)
            if sequence.live and self._can_copy and sequence.computed < wanted > coming.length:
                coming = Wait(number, wanted)
        if coming.length - best.length >= _WORTH_WAITING:
            if self._kind is MemoryKind.EXACT:
                self._all[coming.sequence].stops.add(coming.length)
            return coming
        return best

    def is_coming(self, wait: Wait, tokens: Tokens) -> bool:
        """Whether what ``wait`` promises for ``tokens`` is still being computed."""
        sequence = self._all[wait.sequence]
        return (
            sequence.live
            and sequence.computed < wait.length <= len(sequence.tokens)
            and np.array_equal(sequence.tokens[: wait.length], tokens[: wait.length])
        )

    def _lendable(self, number: int, wanted: int) -> int:
        sequence = self._all[number]
        if sequence.live and not self._can_copy:
            return 0
        length = min(wanted, sequence.computed)
        if self._kind is MemoryKind.EXACT:
            return length if length == sequence.computed else 0
        if self._kind is MemoryKind.WINDOW and length:
            first = self._memory.first_position(number)
            return length if 0 <= first <= max(0, length - self._window) else 0
        return length

    # ------------------------------------------------------------ taking and giving back

    def take(self, tokens: Tokens, source: Source, *, remember: bool = True) -> tuple[int, int] | None:
        """A live sequence that holds the source's prefix, and that prefix's length; None when all are live.

        ``tokens`` (the whole prompt, which may not change) is what others can match while it is computed.
        """
        number, length = self._obtain(source)
        if number is None:
            return None
        sequence = self._all[number]
        sequence.live = True
        sequence.tokens = tokens
        sequence.computed = length
        sequence.stops = set()
        sequence.checkpoint = None
        if self._kind is MemoryKind.EXACT and remember and len(tokens) - length >= _CHECKPOINT_FROM:
            sequence.checkpoint = len(tokens) - _CHECKPOINT_BEFORE_END
            sequence.stops.add(sequence.checkpoint)
        self._touch(number)
        if source.sequence is not None:
            self._touch(source.sequence)
        if remember:
            self._tree.put(number, tokens)
        else:
            self._tree.remove(number)
        return number, length

    def _obtain(self, source: Source) -> tuple[int | None, int]:
        origin = source.sequence
        whole = origin is not None and source.length == self._all[origin].computed
        take_over = (whole and self._kind is not MemoryKind.EXACT) or not self._can_copy
        if origin is not None and not source.live and take_over:
            return self._cut(origin, source.length)
        target = self._unused(spare=origin)
        if target is None:
            if origin is not None and not source.live:
                return self._cut(origin, source.length)
            return None, 0
        if origin is None:
            return target, 0
        self._memory.copy(origin, target, source.length)
        self.cells.share(origin, target, source.length)
        return target, source.length

    def _unused(self, spare: int | None) -> int | None:
        """An empty sequence, else the least recently used idle one, emptied; never ``spare``."""
        for number, sequence in enumerate(self._all):
            if not sequence.live and not sequence.computed:
                return number
        for number in self.idle():
            if number != spare:
                self.forget(number)
                return number
        return None

    def _cut(self, number: int, length: int) -> tuple[int, int]:
        if length == self._all[number].computed or self._memory.remove(number, length):
            self.cells.cut(number, length)
            return number, length
        self.forget(number)
        return number, 0

    def grow(self, number: int, count: int) -> None:
        """``count`` more tokens of a live sequence are computed."""
        sequence = self._all[number]
        sequence.computed += count
        self.cells.grow(number, count)
        if sequence.computed == sequence.checkpoint:
            self._keep_checkpoint(number)

    def _keep_checkpoint(self, number: int) -> None:
        """Copy a live exact state to a sequence that only remembers it, if there is one to spare."""
        sequence = self._all[number]
        sequence.checkpoint = None
        target = self._unused(spare=None)
        if target is None:
            return
        self._memory.copy(number, target, sequence.computed)
        self.cells.share(number, target, sequence.computed)
        copy = self._all[target]
        copy.tokens = sequence.tokens[: sequence.computed]
        copy.computed = sequence.computed
        self._tree.put(target, copy.tokens)
        self._touch(target)

    def drop_end(self, number: int, length: int) -> None:
        """Undo what was computed beyond ``length`` but not accounted for (rejected drafts)."""
        self._memory.remove(number, length)

    def release(self, number: int, tokens: Tokens, *, remember: bool = True) -> None:
        """The answer is done or parked: keep ``tokens``, all of which are computed, as a prefix for others."""
        sequence = self._all[number]
        sequence.live = False
        sequence.stops = set()
        self._touch(number)
        if not remember or not len(tokens):
            self.forget(number)
            return
        sequence.tokens = tokens
        self._tree.put(number, tokens)

    def forget(self, number: int) -> None:
        """Empty a sequence."""
        self._memory.remove(number)
        self.cells.cut(number, 0)
        self._tree.remove(number)
        sequence = self._all[number]
        sequence.tokens = np.empty(0, np.int32)
        sequence.computed = 0

    def restart(self, number: int) -> None:
        """A live sequence lost its state and begins again; what it is about to hold stays the same."""
        self._memory.remove(number)
        self.cells.cut(number, 0)
        self._all[number].computed = 0

    def make_room(self, cells: int) -> bool:
        """Forget idle sequences until ``cells`` are free."""
        for number in self.idle():
            if self.cells.free >= cells:
                break
            self.forget(number)
        return self.cells.free >= cells

    def next_stop(self, number: int, computed: int) -> int | None:
        """Where a live sequence must pause so that others can copy its exact state."""
        return min((stop for stop in self._all[number].stops if stop > computed), default=None)

    def _touch(self, number: int) -> None:
        self._clock += 1
        self._all[number].used_at = self._clock
