"""Speeds measured on this machine, kept over time: what overrides an estimate, and what shows that an update cost speed.

One JSON line per measurement in one file; reading leaves out lines that are damaged. Comparing is pure.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

DROP = 0.90
"""A speed below this part of the last one on the same setting is reported."""


class Measurement(Struct, frozen=True, kw_only=True):
    """One benchmark of one model on one device. ``at`` is Unix seconds; rates are medians in tokens per second.

    ``model_key`` identifies the file (its sha256, else size and name); ``device`` is the device's name.
    """

    at: float
    model: str
    model_key: str
    quant: str | None
    device: str
    backend: str
    engine: str
    build: str
    threads: int | None
    gpu_layers: int
    kv_type: str
    prompt_tokens: int
    generated_tokens: int
    depth: int
    prefill_tokens_per_second: float
    decode_tokens_per_second: float

    @property
    def setting(self) -> tuple[object, ...]:
        """What must be equal for two measurements to be comparable; the build is what is compared."""
        return (
            self.model_key,
            self.device,
            self.backend,
            self.engine,
            self.threads,
            self.gpu_layers,
            self.kv_type,
            self.prompt_tokens,
            self.generated_tokens,
            self.depth,
        )


class Change(Struct, frozen=True, kw_only=True):
    """A measurement against the one before it: ratios are new / old."""

    before: Measurement
    after: Measurement
    prefill_ratio: float
    decode_ratio: float

    @property
    def slower(self) -> bool:
        return min(self.prefill_ratio, self.decode_ratio) < DROP

    @property
    def build_changed(self) -> bool:
        return self.before.build != self.after.build


class MeasurementFile:
    """The file of measurements. Appending is one write of one line, synced; readers may run beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[Measurement, ...]:
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return ()
        found = []
        for line in lines:
            try:
                found.append(msgspec.json.decode(line, type=Measurement))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
        return tuple(found)

    def append(self, measurement: Measurement) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(measurement) + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def latest(history: Iterable[Measurement], model_key: str, device: str) -> Measurement | None:
    """The newest measurement of a model on a device: the speed to show instead of an estimate."""
    matching = [m for m in history if m.model_key == model_key and m.device == device and m.depth == 0]
    return max(matching, key=lambda m: m.at, default=None)


def compare(history: Iterable[Measurement], new: Measurement) -> Change | None:
    """``new`` against the newest earlier measurement of the same setting; None when there is none."""
    earlier = [m for m in history if m.setting == new.setting and m.at < new.at]
    before = max(earlier, key=lambda m: m.at, default=None)
    if before is None:
        return None
    return Change(
        before=before,
        after=new,
        prefill_ratio=new.prefill_tokens_per_second / before.prefill_tokens_per_second,
        decode_ratio=new.decode_tokens_per_second / before.decode_tokens_per_second,
    )
