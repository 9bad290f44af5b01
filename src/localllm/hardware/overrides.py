"""Values that a person sets over what the probes found: ``cuda0.free_bytes = 20GiB``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from msgspec import structs

from localllm.core.errors import HardwareError
from localllm.core.machine import Device, Machine
from localllm.core.units import parse_bytes
from localllm.hardware.evidence import overrule

SOURCE = "override"
FIELDS = ("total_bytes", "free_bytes", "margin_bytes", "bandwidth_gb_per_s", "cores", "name")


def parse_overrides(texts: Iterable[str], *, margin_bytes: int | None = None) -> dict[str, str]:
    """``("cuda0.free_bytes=20GiB",)`` → ``{"cuda0.free_bytes": "20GiB"}``; the last one of a key counts.

    ``margin_bytes`` is left alone on every device, unless a text says otherwise for one.

    Raises:
        HardwareError: a text is not DEVICE.FIELD=VALUE.
    """
    parsed: dict[str, str] = {} if margin_bytes is None else {"*.margin_bytes": str(margin_bytes)}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise HardwareError(f"{text!r} is not DEVICE.FIELD=VALUE.", hint="Like cuda0.free_bytes=20GiB")
        parsed[key.strip()] = value.strip()
    return parsed


def apply_overrides(machine: Machine, overrides: Mapping[str, str]) -> Machine:
    """The machine with ``DEVICE.FIELD`` replaced; what cannot be applied is named in ``problems``.

    Sizes may be written as ``20GiB``; ``unknown`` takes a value away; the device ``*`` means every one.
    """
    devices = {device.id: device for device in machine.devices}
    problems = list(machine.problems)
    for key, text in overrides.items():
        device_id, _, field = key.partition(".")
        chosen = list(devices) if device_id == "*" else [device_id] if device_id in devices else []
        if not chosen or field not in FIELDS:
            known = [f"{name}.{field}" for name in devices for field in FIELDS]
            near = difflib.get_close_matches(key, known, n=1)
            problems.append(f"Override {key!r} names nothing here" + (f"; {near[0]}?" if near else "."))
            continue
        try:
            devices |= {name: _replace(devices[name], field, text.strip()) for name in chosen}
        except ValueError as error:
            problems.append(f"Override {key}: {error}.")
    return structs.replace(machine, devices=tuple(devices.values()), problems=tuple(problems))


def _replace(device: Device, field: str, text: str) -> Device:
    unknown = text.lower() == "unknown"
    if unknown and field in ("margin_bytes", "name"):
        raise ValueError(f"{field} cannot be unknown")
    value: int | float | str | None
    if unknown:
        value = None
    elif field.endswith("_bytes"):
        value = parse_bytes(text)
    elif field == "cores":
        value = int(text)
    elif field == "bandwidth_gb_per_s":
        value = float(text)
    else:
        value = text
    if isinstance(value, int | float) and not 0 <= value < 1 << 50:
        raise ValueError(f"{text!r} is out of range")
    return overrule(device, field, SOURCE, value, note=text)
