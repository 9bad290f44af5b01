from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from localllm.core.errors import ConfigInvalid, ConfigUnknownKey
from localllm.settings.load import load_settings
from localllm.settings.paths import Paths
from localllm.settings.write import write_setting

COMMENTED = """\
# my settings
[server]   # the port
port = 1   # keep this

[log]
level = "info"
"""


def write(paths: Paths, text: str) -> None:
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(text)


def test_the_first_write_makes_a_private_file(paths: Paths) -> None:
    write_setting(paths, "server.port", "8080")
    assert load_settings(paths, env={}).settings.server.port == 8080
    assert stat.S_IMODE(paths.config_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(paths.config_file.parent.stat().st_mode) == 0o700


def test_comments_and_order_stay_and_the_old_file_lies_beside(paths: Paths) -> None:
    write(paths, COMMENTED)
    write_setting(paths, "server.port", 2)
    assert paths.config_file.read_text() == COMMENTED.replace("port = 1", "port = 2")
    assert paths.config_file.with_name("config.toml.bak").read_text() == COMMENTED
    assert {path.name for path in paths.config_file.parent.iterdir()} == {"config.toml", "config.toml.bak"}


def test_none_goes_back_to_the_default(paths: Paths) -> None:
    write(paths, COMMENTED)
    write_setting(paths, "log.level", None)
    write_setting(paths, "engine.threads", None)
    assert "level" not in paths.config_file.read_text()
    assert load_settings(paths, env={}).settings.log.level == "info"


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("server.api_keys", "a,b", ("a", "b")),
        ("server.api_keys", ["a"], ("a",)),
        ("engine.threads", "4", 4),
        ("server.strict", "on", True),
        ("models.default", "gemma3-270m:Q4_K_M", "gemma3-270m:Q4_K_M"),
    ],
)
def test_what_is_written_is_read_back(paths: Paths, key: str, value: object, read: object) -> None:
    write(paths, "server = {port = 3}\nengine.kv_type = 'q8_0'\n")
    write_setting(paths, key, value)
    loaded = load_settings(paths, env={}).settings
    section, _, name = key.partition(".")
    assert getattr(getattr(loaded, section), name) == read
    assert (loaded.server.port, loaded.engine.kv_type) == (3, "q8_0")


def test_a_bad_value_changes_nothing(paths: Paths) -> None:
    write(paths, COMMENTED)
    with pytest.raises(ConfigInvalid, match="from 0 to 65535, not '70000'"):
        write_setting(paths, "server.port", "70000")
    with pytest.raises(ConfigUnknownKey) as caught:
        write_setting(paths, "server.prot", "1")
    assert caught.value.hint == "Did you mean server.port?"
    assert paths.config_file.read_text() == COMMENTED
    assert not paths.config_file.with_name("config.toml.bak").exists()


def test_a_broken_file_is_not_rewritten(paths: Paths) -> None:
    write(paths, "[server\n")
    with pytest.raises(ConfigInvalid, match=r"config\.toml:1:"):
        write_setting(paths, "server.port", "1")
    assert paths.config_file.read_text() == "[server\n"


def test_a_value_in_the_place_of_a_section_is_named(paths: Paths) -> None:
    write(paths, "server = 3\n")
    for value in (1, None):
        with pytest.raises(ConfigInvalid, match="where a section should be"):
            write_setting(paths, "server.port", value)
    assert paths.config_file.read_text() == "server = 3\n"


def test_one_mistake_elsewhere_does_not_stop_its_own_repair(paths: Paths) -> None:
    write(paths, "[server]\nport = 'x'\n")
    write_setting(paths, "server.port", "5")
    assert load_settings(paths, env={}).settings.server.port == 5


def test_a_link_to_a_file_kept_elsewhere_stays_a_link(paths: Paths, tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles" / "localllm.toml"
    kept.parent.mkdir()
    kept.write_text(COMMENTED)
    paths.config_file.parent.mkdir(parents=True)
    paths.config_file.symlink_to(kept)
    write_setting(paths, "server.port", 2)
    assert paths.config_file.is_symlink()
    assert "port = 2" in kept.read_text()


def test_a_failed_write_leaves_the_old_file_and_no_litter(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(paths, COMMENTED)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigInvalid, match="No space left"):
        write_setting(paths, "server.port", "5")
    assert paths.config_file.read_text() == COMMENTED
    leftovers = {path.name for path in Path(paths.config_file.parent).iterdir()}
    assert leftovers <= {"config.toml", "config.toml.bak"}
