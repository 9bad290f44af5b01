"""Where localllm's own files lie, decided once from the environment and handed down.

Nothing here creates a file or a folder: whoever writes makes its own (``private.secure_folder`` where the content is
nobody else's business). ``LOCALLLM_HOME`` puts everything under one folder (tests, a second installation, a USB disk);
without it the operating system's conventions decide, through platformdirs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localllm.core.errors import ConfigInvalid

APP_NAME = "localllm"


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Absolute paths. ``data_dir`` is worth a backup, ``cache_dir`` can go at any time, ``state_dir`` belongs to this machine."""

    config_file: Path
    data_dir: Path
    state_dir: Path
    cache_dir: Path
    log_dir: Path

    @property
    def store_dir(self) -> Path:
        """The model store, unless ``models.store_dir`` says otherwise."""
        return self.data_dir / "models"

    @property
    def database_file(self) -> Path:
        """Chats and request records."""
        return self.data_dir / "localllm.db"

    @property
    def lock_file(self) -> Path:
        """Held by the one running service."""
        return self.state_dir / "service.lock"

    @property
    def identity_file(self) -> Path:
        """Address, process and nonce of the running service, written by it."""
        return self.state_dir / "service.json"

    @property
    def admin_key_file(self) -> Path:
        """The key of the control namespace, 0600."""
        return self.state_dir / "admin.key"

    @property
    def keys_file(self) -> Path:
        """The port's named keys, hashed, 0600."""
        return self.state_dir / "keys.json"

    @property
    def aliases_file(self) -> Path:
        """Names that stand for models."""
        return self.data_dir / "aliases.json"

    @property
    def audit_dir(self) -> Path:
        """The audit log and its older files."""
        return self.data_dir / "audit"

    @property
    def downloads_file(self) -> Path:
        """The pulls that are not done."""
        return self.state_dir / "downloads.json"

    @property
    def curated_file(self) -> Path:
        """The catalogue that ``localllm catalogue update`` fetched; without it, the one that localllm came with counts."""
        return self.data_dir / "catalogue.json"

    @property
    def builds_dir(self) -> Path:
        """Builds of llama-cpp-python, side by side."""
        return self.data_dir / "builds"

    @property
    def measurements_file(self) -> Path:
        """Speeds measured here."""
        return self.data_dir / "measurements.jsonl"

    @property
    def residuals_file(self) -> Path:
        """What loads took, against their plans."""
        return self.data_dir / "residuals.json"

    @property
    def tuning_file(self) -> Path:
        """The fastest threads and batch sizes found by ``localllm tune``."""
        return self.data_dir / "tuning.json"

    @property
    def service_log(self) -> Path:
        return self.log_dir / "service.log"


def resolve_paths(env: Mapping[str, str] | None = None) -> Paths:
    """Decide every path from ``env`` (default: the process's environment).

    Raises ConfigInvalid when LOCALLLM_HOME is a relative path: it would mean another folder in every terminal.
    """
    env = os.environ if env is None else env
    home = env.get("LOCALLLM_HOME")
    if home:
        root = Path(home).expanduser()
        if not root.is_absolute():
            raise ConfigInvalid(
                f"LOCALLLM_HOME is {home!r}, which is not an absolute path.",
                hint="Set LOCALLLM_HOME to a path that starts at the root, such as /srv/localllm.",
            )
        return Paths(
            config_file=root / "config.toml",
            data_dir=root / "data",
            state_dir=root / "state",
            cache_dir=root / "cache",
            log_dir=root / "log",
        )
    return _conventional_paths()


def _conventional_paths() -> Paths:
    from platformdirs import PlatformDirs  # 10 ms that LOCALLLM_HOME and `--version` need not pay

    dirs = PlatformDirs(APP_NAME, appauthor=False)
    return Paths(
        config_file=dirs.user_config_path / "config.toml",
        data_dir=dirs.user_data_path,
        state_dir=dirs.user_state_path,
        cache_dir=dirs.user_cache_path,
        log_dir=dirs.user_log_path,
    )
