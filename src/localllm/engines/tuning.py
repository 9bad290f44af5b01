"""What ``localllm tune`` found, kept per model and device, for the planner to use at the next load."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import Struct


class Tuned(Struct, frozen=True, kw_only=True):
    """The fastest settings of one model on one device. ``at`` is Unix seconds; speeds are tokens per second."""

    model_key: str
    model: str
    device: str
    threads: int
    batch_threads: int
    ubatch: int
    decode_tokens_per_second: float
    prefill_tokens_per_second: float
    build: str
    at: float


class TuningFile:
    """One JSON file, replaced by rename. A damaged one counts as empty: tuning again is cheap."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[Tuned, ...]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=tuple[Tuned, ...])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return ()

    def find(self, model_key: str, device: str) -> Tuned | None:
        """The settings for this model here, else those of any model on this device: threads depend mostly on it."""
        here = [t for t in self.read() if t.device == device]
        exact = [t for t in here if t.model_key == model_key]
        return max(exact or here, key=lambda t: t.at, default=None)

    def keep(self, tuned: Tuned) -> None:
        """Put ``tuned`` in the place of what was known about the same model and device."""
        others = [t for t in self.read() if (t.model_key, t.device) != (tuned.model_key, tuned.device)]
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = self.path.with_name(f".{self.path.name}.new")
        with beside.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode((*others, tuned))))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)


def quiet_threads(processors: int, load_average: float | None) -> int | None:
    """Threads that do not fight with what else runs now: the processors less the busy ones, at least one.

    None (the engine's own choice) when the machine is idle or its load is unknown. llama.cpp's threads spin at each
    operation until the slowest is done, so one that must share its processor stops them all.
    """
    if load_average is None:
        return None
    busy = round(load_average)
    return None if busy == 0 else max(1, processors - busy)
