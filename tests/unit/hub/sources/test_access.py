from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.errors import ConfigInvalid
from localllm.hub.sources.access import read_access


def test_defaults() -> None:
    access = read_access({})
    assert access.hugging_face == "https://huggingface.co"
    assert access.hugging_face_token is None
    assert not access.offline
    assert access.trusted == {"huggingface.co:443", "registry.ollama.ai:443"}


def test_the_environment_of_hugging_faces_own_tools_counts(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-home\n")
    (tmp_path / "other").write_text("from-path\n")
    env = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://mirror.local:8080/", "HF_HUB_OFFLINE": "1"}
    access = read_access(env)
    assert access.hugging_face == "http://mirror.local:8080"
    assert access.hugging_face_token == "from-home"
    assert access.offline
    assert "mirror.local:8080" in access.trusted
    assert read_access({**env, "HF_TOKEN_PATH": str(tmp_path / "other")}).hugging_face_token == "from-path"
    assert read_access({**env, "HF_TOKEN": "from-env"}).hugging_face_token == "from-env"


def test_a_token_file_that_cannot_be_used_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    assert read_access({"HF_HOME": str(tmp_path)}).hugging_face_token is None
    assert read_access({"HF_TOKEN_PATH": str(tmp_path)}).hugging_face_token is None


@pytest.mark.parametrize("address", ["mirror.local", "ftp://mirror", "http://"])
def test_an_address_that_is_none_is_a_configuration_error(address: str) -> None:
    with pytest.raises(ConfigInvalid, match="HF_ENDPOINT"):
        read_access({"HF_ENDPOINT": address})
    with pytest.raises(ConfigInvalid, match="ollama_registry"):
        read_access({}, ollama=address)
