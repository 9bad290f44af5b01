"""Where the data files are that ship with localllm: inside the wheel, or beside ``src`` in a checkout."""

from __future__ import annotations

from pathlib import Path

import localllm
from localllm.core.errors import HardwareError


def asset_path(name: str) -> Path:
    """Path of the shipped data file ``name`` (relative to ``assets/``).

    Raises:
        HardwareError: the installation is incomplete.
    """
    package = Path(localllm.__file__).parent
    for folder in (package / "assets", package.parent.parent / "assets"):
        path = folder / name
        if path.is_file():
            return path
    raise HardwareError(
        f"The data file {name} is missing from this installation.",
        hint="Install localllm again, for example with: pipx reinstall localllm",
    )
