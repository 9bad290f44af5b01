from __future__ import annotations

import pytest

from localllm.settings.schema import all_settings, assemble, convert, nearest_key


def test_every_setting_says_what_it_means() -> None:
    for setting in all_settings().values():
        assert setting.help, setting.key
        assert not setting.help.endswith("."), f"{setting.key}: the sentence is set into others"
        assert setting.type in {"string", "integer", "number", "boolean", "list"}


def test_variable_names_are_unique() -> None:
    variables = [setting.variable for setting in all_settings().values()]
    assert len(set(variables)) == len(variables)
    assert all_settings()["server.port"].variable == "LOCALLLM_SERVER_PORT"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("server.port", "a whole number from 0 to 65535"),
        ("server.strict", "true or false"),
        ("server.max_body_bytes", "an amount of bytes, such as 512MiB"),
        ("server.api_keys", "a list of texts"),
        ("engine.kv_type", "one of f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0"),
        ("engine.gpu_layers", "a whole number from 0 to 100000"),
        ("server.drain_seconds", "a number from 0 to 31536000"),
    ],
)
def test_expectation_is_worded(key: str, expected: str) -> None:
    assert all_settings()[key].expectation() == expected


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("server.prot", "server.port"),
        ("server.apikeys", "server.api_keys"),
        ("sever", "server"),
        ("port", "server.port"),
        ("kv_type", "engine.kv_type"),
        ("server.kv_typ", "engine.kv_type"),
        ("zzzzzz", None),
    ],
)
def test_nearest_key(key: str, near: str | None) -> None:
    assert nearest_key(key) == near


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("server.port", "8080", 8080),
        ("server.strict", "yes", True),
        ("server.strict", "False", False),
        ("server.api_keys", "a, b,", ("a", "b")),
        ("server.drain_seconds", "2.5", 2.5),
        ("engine.context_length", "4096", 4096),
        ("server.max_body_bytes", "8MiB", 8 << 20),
        ("server.max_body_bytes", "1000", 1000),
    ],
)
def test_texts_are_parsed(key: str, text: str, value: object) -> None:
    assert convert(all_settings()[key], text, typed=False) == value


def test_assemble_keeps_defaults_for_what_is_not_named() -> None:
    settings = assemble({"server.port": 1})
    assert settings.server.port == 1
    assert settings.server.host == "127.0.0.1"
    assert settings.log.level == "info"
