"""The SHA-256 of a file that is still growing: what is there without a gap is hashed while the rest arrives."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

STEP_BYTES = 4 << 20


class PrefixDigest:
    """``read(offset, length)`` gives bytes that are there. One step at a time, in any thread."""

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._digest = hashlib.sha256()
        self.hashed_bytes = 0

    def step(self, until: int) -> None:
        """Hash the next stretch, at most ``STEP_BYTES`` and not beyond ``until``."""
        digest, start = self._digest, self.hashed_bytes
        data = self._read(start, min(STEP_BYTES, until - start))
        digest.update(data)
        if self._digest is digest:  # else: started over meanwhile, and this was of another file
            self.hashed_bytes = start + len(data)

    def restart(self) -> None:
        self._digest = hashlib.sha256()
        self.hashed_bytes = 0

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
