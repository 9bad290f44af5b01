"""Opening model files: what is no regular file, what is split, and how fast the real one is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localllm.core.errors import GGUFError
from localllm.hub.gguf_file import read_header
from tests.support import gguf_bytes as g


def part(number: int, count: int, *, tensors: int = 4, name: str = "t") -> bytes:
    pairs = [
        g.pair("split.no", g.UINT16, number.to_bytes(2, "little")),
        g.pair("split.count", g.UINT16, count.to_bytes(2, "little")),
        g.pair("split.tensors.count", g.INT32, tensors.to_bytes(4, "little")),
    ]
    infos = [g.tensor(f"{name}{number}.{i}.weight", (8,), 0, 32 * i) for i in range(2)]
    return g.gguf(pairs, infos, data=bytes(64))


def write(folder: Path, *parts: bytes, stem: str = "model") -> Path:
    paths = [folder / f"{stem}-{i + 1:05d}-of-{len(parts):05d}.gguf" for i in range(len(parts))]
    for path, data in zip(paths, parts, strict=True):
        path.write_bytes(data)
    return paths[0]


def test_a_split_model_is_read_as_one(tmp_path: Path) -> None:
    first = write(tmp_path, part(0, 2), part(1, 2))
    header = read_header(first)
    assert [t.name for t in header.tensors] == ["t0.0.weight", "t0.1.weight", "t1.0.weight", "t1.1.weight"]
    assert header.size_bytes == 2 * first.stat().st_size


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((part(0, 2), part(0, 2, name="u")), "says in its header that it is part 1"),
        ((part(0, 2), part(1, 3)), "part 2 of 3"),
        ((part(0, 2), part(1, 2, tensors=4)[:-10]), "too short"),
        ((part(0, 2, tensors=5), part(1, 2, tensors=5)), "hold 4 tensors, but 5"),
        ((part(0, 3), part(1, 3)), "name says 2 parts, its header 3"),
        ((part(0, 60_000), part(1, 2)), "60000; at most 1000"),
    ],
)
def test_parts_that_do_not_belong_together(tmp_path: Path, parts: tuple[bytes, bytes], reason: str) -> None:
    with pytest.raises(GGUFError, match=reason):
        read_header(write(tmp_path, *parts))


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    first = write(tmp_path, part(0, 2), part(1, 2))
    (tmp_path / "model-00002-of-00002.gguf").unlink()
    with pytest.raises(GGUFError, match="model-00002-of-00002"):
        read_header(first)


def test_the_second_part_points_to_the_first(tmp_path: Path) -> None:
    write(tmp_path, part(0, 2), part(1, 2))
    with pytest.raises(GGUFError, match="part 2 of 2") as caught:
        read_header(tmp_path / "model-00002-of-00002.gguf")
    assert "model-00001-of-00002.gguf" in (caught.value.hint or "")


def test_a_renamed_split_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "renamed.gguf"
    path.write_bytes(part(0, 2))
    with pytest.raises(GGUFError, match="is not NAME-00001-of-00002"):
        read_header(path)


def test_what_is_not_a_regular_file(tmp_path: Path) -> None:
    with pytest.raises(GGUFError, match=r"not a regular file|Is a directory"):
        read_header(tmp_path)
    with pytest.raises(GGUFError, match="No such file"):
        read_header(tmp_path / "absent.gguf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_nobody_writes_to_does_not_hang(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    with pytest.raises(GGUFError, match="not a regular file"):
        read_header(pipe)


def test_an_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "closed.gguf"
    path.write_bytes(g.small_llama())
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(GGUFError, match="Permission denied"):
        read_header(path)


def test_the_demo_model_is_read_quickly(demo_model: Path) -> None:
    """250 MB, 262,144 words: at most 0.1 s of processor time (the machine may be busy)."""
    read_header(demo_model)
    spent = min(_processor_seconds(demo_model) for _ in range(5))
    assert spent < 0.1


def _processor_seconds(path: Path) -> float:
    began = time.process_time()
    read_header(path)
    return time.process_time() - began


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
def test_the_demo_model_is_read_in_little_memory(demo_model: Path) -> None:
    program = (
        "import resource, sys\n"
        "from localllm.hub.gguf_file import read_header\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "read_header(sys.argv[1])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(demo_model)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert int(done.stdout) < 64 << 10
