"""What loads really took, against what was planned for them: kept over time, so that the next plan is better.

One JSON file, replaced by rename. What to make of its content is ``core.learn``.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from localllm.core.learn import MOST_OBSERVATIONS, Ground, Observation

MOST_GROUNDS = 32
"""Devices times builds; the one that was seen last longest ago goes first."""


class ResidualFile:
    """A damaged file counts as empty: what it held is learned again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[Observation, ...]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=tuple[Observation, ...])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return ()

    def write(self, observations: Iterable[Observation]) -> None:
        """Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = self.path.with_name(f".{self.path.name}.new")
        with beside.open("wb") as file:
            file.write(msgspec.json.encode(tuple(observations)))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)


def newest(observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """What is worth keeping: of each device and build the newest of each part, and only so many of those."""
    parts: dict[tuple[Ground, str], list[Observation]] = defaultdict(list)
    for seen in observations:
        parts[seen.ground, seen.part].append(seen)
    last_seen: dict[Ground, float] = {}
    for (ground, _), values in parts.items():
        last_seen[ground] = max(last_seen.get(ground, 0.0), *(seen.at for seen in values), 0.0)
    kept = set(sorted(last_seen, key=lambda ground: -last_seen[ground])[:MOST_GROUNDS])
    return tuple(
        seen
        for (ground, _), values in parts.items()
        if ground in kept
        for seen in sorted(values, key=lambda seen: seen.at)[-MOST_OBSERVATIONS:]
    )
