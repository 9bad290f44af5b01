"""A small tree of kernel files to read from."""

from __future__ import annotations

from pathlib import Path

from localllm.core.machine import Device, DeviceKind


def plant(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def gpu(vendor: str, *, unified: bool = False, total_bytes: int | None = 1000) -> Device:
    return Device(
        id="gpu0",
        kind=DeviceKind.GPU,
        name="card",
        vendor=vendor,
        total_bytes=total_bytes,
        free_bytes=None,
        margin_bytes=0,
        unified=unified,
        address="/sys/class/drm/card0",
    )
