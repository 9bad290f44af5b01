"""Which bytes of a file are there: sorted, disjoint half-open ranges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Range = tuple[int, int]


class Ranges:
    """A set of byte positions. ``add`` merges; nothing outside [0, total) is ever in it.

    The list inside is replaced, never changed, so another thread may read it meanwhile.
    """

    def __init__(self, total: int, done: Iterable[Range] = ()) -> None:
        if total < 0:
            raise ValueError("a file cannot have a negative size")
        self.total = total
        self._done: list[Range] = []
        for start, end in done:
            self.add(start, end)

    def __iter__(self) -> Iterator[Range]:
        return iter(self._done)

    @property
    def covered(self) -> int:
        """Bytes that are there."""
        return sum(end - start for start, end in self._done)

    @property
    def complete(self) -> bool:
        return self.covered == self.total

    @property
    def prefix(self) -> int:
        """Bytes that are there from the very beginning on, without a gap."""
        return self._done[0][1] if self._done and self._done[0][0] == 0 else 0

    def add(self, start: int, end: int) -> None:
        """Add [start, end).

        Raises:
            ValueError: it is not within the file.
        """
        if not 0 <= start <= end <= self.total:
            raise ValueError(f"[{start}, {end}) is not within a file of {self.total} bytes")
        if start == end:
            return
        kept: list[Range] = []
        for low, high in self._done:
            if high < start or low > end:
                kept.append((low, high))
            else:
                start, end = min(start, low), max(end, high)
        kept.append((start, end))
        self._done = sorted(kept)

    def gaps(self) -> list[Range]:
        """What is missing, in order."""
        missing, at = [], 0
        for start, end in self._done:
            if start > at:
                missing.append((at, start))
            at = end
        if at < self.total:
            missing.append((at, self.total))
        return missing

    def pieces(self, size: int) -> list[Range]:
        """The gaps cut into pieces of at most ``size`` bytes: the work to hand out, first bytes first."""
        return [(low, min(low + size, end)) for start, end in self.gaps() for low in range(start, end, size)]
