from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from localllm.core.errors import HubError, StoreCorrupt
from localllm.core.generation import Sampling
from localllm.hub.manifest import FORMAT, FileEntry, Manifest, Manifests
from localllm.hub.names import parse_name

MANIFEST = Manifest(
    format=FORMAT,
    name="org/Gemma3-270m:Q4_K_M",
    files=(FileEntry(size_bytes=3, sha256="ab" * 32),),
    sampling=Sampling(temperature=0.3),
    added_at=1.5,
)


@pytest.fixture
def manifests(tmp_path: Path) -> Manifests:
    return Manifests(tmp_path / "manifests")


def only_file(manifests: Manifests) -> Path:
    (path,) = manifests.root.iterdir()
    return path


def test_round_trip_and_the_file_stays_in_its_folder(manifests: Manifests) -> None:
    manifests.write(MANIFEST)
    assert manifests.read(parse_name("ORG/gemma3-270m:q4_k_m")) == MANIFEST
    assert manifests.read_all() == ((MANIFEST,), ())
    assert only_file(manifests).parent == manifests.root
    assert msgspec.json.decode(only_file(manifests).read_bytes())["sampling"] == {"temperature": 0.3}


def test_nothing_there_is_none(manifests: Manifests) -> None:
    assert manifests.read(parse_name("a")) is None
    assert manifests.read_all() == ((), ())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"name": "a"}',
        b"\xff\xfe",
        b'{"format": 1, "name": "../x", "files": [], "added_at": 1}',
    ],
)
def test_a_damaged_manifest_costs_that_model_only(manifests: Manifests, content: bytes) -> None:
    manifests.write(MANIFEST)
    (manifests.root / "broken.json").write_bytes(content)
    found, problems = manifests.read_all()
    assert found == (MANIFEST,)
    assert len(problems) == 1
    assert "broken.json" in problems[0]


def test_asking_for_the_damaged_one_says_so(manifests: Manifests) -> None:
    manifests.write(MANIFEST)
    only_file(manifests).write_bytes(b"{")
    with pytest.raises(StoreCorrupt, match="damaged") as caught:
        manifests.read(parse_name(MANIFEST.name))
    assert caught.value.hint


def test_one_from_the_future_says_so(manifests: Manifests) -> None:
    manifests.write(msgspec.structs.replace(MANIFEST, format=FORMAT + 1))
    with pytest.raises(StoreCorrupt, match="later version"):
        manifests.read(parse_name(MANIFEST.name))


def test_a_manifest_under_another_name_is_not_believed(manifests: Manifests) -> None:
    manifests.write(MANIFEST)
    only_file(manifests).rename(manifests.root / "other.json")
    assert manifests.read_all()[0] == ()
    with pytest.raises(StoreCorrupt):
        manifests.read(parse_name("other"))


def test_a_refusing_disk_is_a_coded_error(manifests: Manifests) -> None:
    manifests.root.parent.mkdir(exist_ok=True)
    manifests.root.write_text("a file where the folder should be")
    with pytest.raises(HubError, match="cannot be written"):
        manifests.write(MANIFEST)
