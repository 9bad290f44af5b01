"""Named keys at rest: hashed, private, and never lost in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.errors import BadRequest, Conflict, Forbidden, NotFound, StoreCorrupt
from localllm.core.gateway import KeyRequest, KeyRules
from localllm.service.keys import MAX_KEYS, Keys


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.json"


def test_a_key_is_found_again_and_never_stored(path: Path) -> None:
    keys = Keys(path, now=lambda: 5.0)
    assert not keys.required
    created = keys.create(KeyRequest(name="app", rules=KeyRules(requests_per_minute=3)))
    reopened = Keys(path)
    assert reopened.required
    assert reopened.find(created.key) == created.info
    assert reopened.all() == (created.info,)
    assert (created.info.created_at, created.info.rules.requests_per_minute) == (5.0, 3)
    assert created.key not in path.read_text() and created.key.endswith(created.info.ends_with)
    assert path.stat().st_mode & 0o077 == 0
    assert keys.find(created.key + "x") is None


def test_revoked_keys_stay_on_the_list(path: Path) -> None:
    keys = Keys(path, now=lambda: 9.0)
    created = keys.create(KeyRequest(name="app"))
    keys.revoke("app")
    assert keys.find(created.key) is None
    assert keys.required
    assert [info.revoked_at for info in Keys(path).all()] == [9.0]
    keys.revoke("app", forget=True)
    assert not Keys(path).required
    with pytest.raises(NotFound):
        keys.revoke("app")


def test_names_are_given_once(path: Path) -> None:
    keys = Keys(path)
    keys.create(KeyRequest(name="app"))
    with pytest.raises(Conflict):
        keys.create(KeyRequest(name="app"))


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "x" * 65, "ключ"])
def test_a_name_must_be_one(path: Path, name: str) -> None:
    with pytest.raises(BadRequest, match="cannot be the name"):
        Keys(path).create(KeyRequest(name=name))


def test_a_pattern_must_be_one(path: Path) -> None:
    with pytest.raises(BadRequest) as refused:
        Keys(path).create(KeyRequest(name="app", rules=KeyRules(blocked_patterns=("ok", "("))))
    assert refused.value.param == "rules.blocked_patterns[1]"
    assert not path.exists()


def test_what_could_not_be_read_back_is_not_written(path: Path) -> None:
    keys = Keys(path)
    rules = KeyRules(blocked_patterns=("x" * 1024,) * 900)
    keys.create(KeyRequest(name="long", rules=rules))
    with pytest.raises(Conflict):
        keys.create(KeyRequest(name="longer", rules=rules))
    assert [info.name for info in Keys(path).all()] == ["long"]
    assert MAX_KEYS > 1


@pytest.mark.parametrize("content", [b"", b"{}", b'[{"hash": 1}]', b"\xff\xfe"])
def test_a_damaged_file_closes_the_port_instead_of_opening_it(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StoreCorrupt):
        Keys(path)


def test_a_file_that_others_can_read_is_not_trusted(path: Path) -> None:
    Keys(path).create(KeyRequest(name="app"))
    path.chmod(0o644)
    with pytest.raises(Forbidden):
        Keys(path)
