"""How fast a model will run: tokens per second with a range and its reason."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from localllm.core.device_table import DeviceRow
from localllm.core.facts import ModelFacts
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device


class SpeedEstimate(Struct, frozen=True, kw_only=True):
    """Tokens per second of one sequence; ``low``…``high`` is where nine of ten measurements fall."""

    decode: float
    decode_low: float
    decode_high: float
    prefill: float | None = None
    prefill_low: float | None = None
    prefill_high: float | None = None
    reason: str


def estimate_speed(
    facts: ModelFacts,
    plan: LaunchPlan,
    gpus: Sequence[Device],
    cpu: Device,
    device_table: Sequence[DeviceRow] = (),
) -> SpeedEstimate | None:
    """None when the bandwidth of a device that is used is unknown."""
    return None
