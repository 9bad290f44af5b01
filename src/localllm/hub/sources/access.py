"""Tokens, mirrors and the offline switch, as Hugging Face's own tools read them from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from localllm.core.errors import ConfigInvalid, DownloadFailed
from localllm.hub.download.wire import origin
from localllm.hub.sources.base import Access

MAX_TOKEN_BYTES = 4_096
_TRUE = ("1", "on", "true", "yes")


def read_access(env: Mapping[str, str], *, ollama: str | None = None) -> Access:
    """From HF_TOKEN, HF_TOKEN_PATH or $HF_HOME/token, HF_ENDPOINT, HF_HUB_OFFLINE; ``ollama`` is a registry's address.

    An address that a person has set is trusted to lie inside this network.

    Raises:
        ConfigInvalid: an address is none.
    """
    defaults = Access()
    hugging_face = _address("HF_ENDPOINT", env.get("HF_ENDPOINT")) or defaults.hugging_face
    registry = _address("downloads.ollama_registry", ollama) or defaults.ollama
    return Access(
        hugging_face=hugging_face,
        hugging_face_token=_token(env),
        ollama=registry,
        offline=env.get("HF_HUB_OFFLINE", "").strip().lower() in _TRUE,
        trusted=frozenset(origin(url) for url in (hugging_face, registry)),
    )


def _address(setting: str, value: str | None) -> str | None:
    if not value:
        return None
    try:
        origin(value)
    except DownloadFailed as error:
        raise ConfigInvalid(
            f"{setting} is {value!r}, which is no web address.", hint="Like https://example.org"
        ) from error
    return value.rstrip("/")


def _token(env: Mapping[str, str]) -> str | None:
    """The token, from the first place that has one; an unreadable file is no token."""
    if token := env.get("HF_TOKEN", "").strip():
        return token
    home = Path(env.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    path = Path(env["HF_TOKEN_PATH"]).expanduser() if env.get("HF_TOKEN_PATH") else home / "token"
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(MAX_TOKEN_BYTES).decode().strip() or None
    except (OSError, UnicodeDecodeError):
        return None
