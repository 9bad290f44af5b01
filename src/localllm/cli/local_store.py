"""The store of this machine, read without the service: for completions and for plans that need no service."""

from __future__ import annotations

from pathlib import Path

from localllm.hub.store import Store
from localllm.settings.load import load_settings
from localllm.settings.paths import resolve_paths


def local_store() -> Store:
    """Raises ConfigInvalid for a bad LOCALLLM_HOME; a broken config.toml means the default folder."""
    paths = resolve_paths()
    folder = load_settings(paths, tolerant=True).settings.models.store_dir
    return Store(paths.store_dir if folder is None else Path(folder).expanduser())
