from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.errors import ConfigInvalid
from localllm.settings.paths import resolve_paths


def test_localllm_home_puts_everything_under_one_folder(tmp_path: Path) -> None:
    paths = resolve_paths({"LOCALLLM_HOME": str(tmp_path)})
    for path in (
        paths.config_file,
        paths.store_dir,
        paths.database_file,
        paths.lock_file,
        paths.admin_key_file,
        paths.service_log,
        paths.cache_dir,
    ):
        assert path.is_relative_to(tmp_path)


def test_a_relative_home_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="not an absolute path") as caught:
        resolve_paths({"LOCALLLM_HOME": "models"})
    assert caught.value.hint is not None


def test_without_it_the_platform_decides(isolated_home: Path) -> None:
    paths = resolve_paths({})
    assert paths.config_file.is_relative_to(isolated_home)
    assert paths.config_file.name == "config.toml"
    assert paths.state_dir != paths.data_dir


def test_resolving_creates_nothing(tmp_path: Path) -> None:
    resolve_paths({"LOCALLLM_HOME": str(tmp_path / "home")})
    assert list(tmp_path.iterdir()) == []
