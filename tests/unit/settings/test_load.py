from __future__ import annotations

import os
from pathlib import Path

import pytest

from localllm.core.config import Settings
from localllm.core.control import ConfigEntry
from localllm.core.errors import ConfigInvalid, ConfigUnknownKey
from localllm.settings.load import LoadedSettings, load_settings
from localllm.settings.paths import Paths
from localllm.settings.schema import all_settings


def write(paths: Paths, text: str | bytes) -> Path:
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_bytes(text.encode() if isinstance(text, str) else text)
    return paths.config_file


def entry(loaded: LoadedSettings, key: str) -> ConfigEntry:
    return next(entry for entry in loaded.entries if entry.key == key)


def test_without_a_file_everything_is_the_default(paths: Paths) -> None:
    loaded = load_settings(paths, env={})
    assert loaded.settings == Settings()
    assert {entry.source for entry in loaded.entries} == {"default"}
    assert [entry.key for entry in loaded.entries] == list(all_settings())
    assert not paths.config_file.exists()


def test_precedence_and_provenance(paths: Paths) -> None:
    file = write(paths, "[server]\nport = 1\nhost = '::1'\n\n[log]\nlevel = 'debug'\n")
    env = {"LOCALLLM_SERVER_PORT": "2", "LOCALLLM_LOG_LEVEL": "warning"}
    loaded = load_settings(paths, env, {"server.port": 3, "log.record_days": None})
    assert loaded.settings.server.port == 3
    assert loaded.settings.server.host == "::1"
    assert loaded.settings.log.level == "warning"
    assert (entry(loaded, "server.port").source, entry(loaded, "server.port").where) == (
        "command line",
        "command line",
    )
    assert entry(loaded, "log.level").where == "LOCALLLM_LOG_LEVEL"
    assert entry(loaded, "server.host").where == f"{file}:3"
    assert entry(loaded, "log.record_days").source == "default"


@pytest.mark.parametrize(
    ("text", "line", "key", "near"),
    [
        ("[server]\n\nprot = 1\n", 3, "server.prot", "server.port"),
        ("# x\n[sever]\nport = 1\n", 2, "sever", "server"),
        ("port = 1\n", 1, "port", "server.port"),
        ("[log]\nlevel = 'info'\n[server]\nport = 1\nhots = 'x'\n", 5, "server.hots", "server.host"),
        ("server.prot = 1\n", 1, "server.prot", "server.port"),
        ("\n\nserver = {prot = 1}\n", 3, "server.prot", "server.port"),
    ],
)
def test_an_unknown_key_names_file_line_and_the_nearest(
    paths: Paths, text: str, line: int, key: str, near: str
) -> None:
    file = write(paths, text)
    with pytest.raises(ConfigUnknownKey) as caught:
        load_settings(paths, env={})
    assert str(caught.value) == f"{file}:{line}: unknown setting {key!r}."
    assert caught.value.hint == f"Did you mean {near}?"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[server]\nport = 'x'\n", 2, "server.port must be a whole number from 0 to 65535, not 'x'"),
        ("[server]\n\nport = 70000\n", 3, "from 0 to 65535, not 70000"),
        ("[server]\nstrict = 1\n", 2, "server.strict must be true or false, not 1"),
        ("[engine]\nkv_type = 'q9'\n", 2, "must be one of f16,"),
        ("[server]\nport = 1.5\n", 2, "a whole number"),
        ("server = 3\n", 1, "'server' is a section"),
        ("[server]\nport = 1\nport = 2\n", 3, "not valid TOML"),
        ("[server\nport = 1\n", 1, "not valid TOML"),
    ],
)
def test_an_invalid_value_names_file_and_line(paths: Paths, text: str, line: int, words: str) -> None:
    file = write(paths, text)
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(paths, env={})
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert words in str(caught.value)
    assert caught.value.hint
    assert file.read_text() == text


def test_a_tolerant_reader_keeps_what_is_right_and_lists_the_rest(paths: Paths) -> None:
    write(paths, "[server]\nport = 'x'\nhost = '::1'\nprot = 3\n")
    loaded = load_settings(paths, {"LOCALLLM_LOG_LEVEL": "loud"}, tolerant=True)
    assert loaded.settings.server.host == "::1"
    assert loaded.settings.server.port == 11500
    assert [problem.code for problem in loaded.problems] == [
        "config_invalid",
        "config_unknown_key",
        "config_invalid",
    ]
    assert any("Did you mean server.port?" in problem for problem in loaded.view().problems)


def test_a_tolerant_reader_survives_a_file_that_is_not_toml(paths: Paths) -> None:
    write(paths, "[[[")
    loaded = load_settings(paths, env={}, tolerant=True)
    assert loaded.settings == Settings()
    assert len(loaded.problems) == 1


def test_not_utf8_names_the_line(paths: Paths) -> None:
    file = write(paths, b"[server]\nhost = '\xff'\n")
    with pytest.raises(ConfigInvalid, match="not UTF-8") as caught:
        load_settings(paths, env={})
    assert str(caught.value).startswith(f"{file}:2:")


def test_a_fifo_does_not_hang_the_reader(paths: Paths) -> None:
    paths.config_file.parent.mkdir(parents=True)
    os.mkfifo(paths.config_file)
    with pytest.raises(ConfigInvalid, match="not a regular file"):
        load_settings(paths, env={})


def test_an_unknown_variable_of_a_section_is_an_error_and_others_are_not_ours(paths: Paths) -> None:
    load_settings(paths, {"LOCALLLM_HOME": "/x", "LOCALLLM_PORT": "tcp://10.0.0.1:11500", "PATH": "/bin"})
    with pytest.raises(ConfigUnknownKey, match="LOCALLLM_SERVER_PROT") as caught:
        load_settings(paths, {"LOCALLLM_SERVER_PROT": "1"})
    assert caught.value.hint == "Did you mean LOCALLLM_SERVER_PORT?"


def test_an_empty_variable_counts_as_unset(paths: Paths) -> None:
    assert load_settings(paths, {"LOCALLLM_SERVER_PORT": ""}).settings.server.port == 11500


def test_an_unknown_override_is_an_error(paths: Paths) -> None:
    with pytest.raises(ConfigUnknownKey):
        load_settings(paths, {}, {"server.prot": 1}, tolerant=True)


def test_secrets_work_and_are_masked_everywhere_they_are_shown(paths: Paths) -> None:
    secret = "sk-0123456789abcdefWXYZ"
    write(paths, f"[server]\napi_keys = ['{secret}', 'short']\n")
    loaded = load_settings(paths, env={})
    assert loaded.settings.server.api_keys == (secret, "short")
    assert entry(loaded, "server.api_keys").value == ("…WXYZ", "…")
    with pytest.raises(ConfigInvalid) as caught:
        write(paths, f"[server]\napi_keys = '{secret}'\n")
        load_settings(paths, env={})
    assert secret not in str(caught.value)


def test_remotes_are_tables_named_by_their_user(paths: Paths) -> None:
    write(
        paths,
        '[remotes.far]\nbase_url = "https://far/v1"\nkey_env = "FAR_KEY"\nmodels = { big = "org/big" }\n'
        "[remotes.far.headers]\nX-Team = 'a'\n",
    )
    remote = load_settings(paths, env={}).settings.remotes["far"]
    assert (remote.base_url, remote.key_env, remote.models) == (
        "https://far/v1",
        "FAR_KEY",
        {"big": "org/big"},
    )
    assert remote.headers == {"X-Team": "a"}


@pytest.mark.parametrize(
    "text",
    [
        "[remotes.far]\nkey = 'k'\n",
        "[remotes.far]\nbase_url = 'far/v1'\n",
        "[remotes.'a b']\nbase_url = 'https://far/v1'\n",
        "[remotes.far]\nbase_url = 'https://far/v1'\nkye = 'k'\n",
        "[remotes]\nfar = 'https://far/v1'\n",
    ],
)
def test_a_remote_that_cannot_be_used_names_its_line(paths: Paths, text: str) -> None:
    write(paths, text)
    with pytest.raises(ConfigInvalid, match=r"config\.toml:\d+: remotes\."):
        load_settings(paths, env={})
    loaded = load_settings(paths, env={}, tolerant=True)
    assert len(loaded.problems) == 1 and loaded.settings.remotes == {}
