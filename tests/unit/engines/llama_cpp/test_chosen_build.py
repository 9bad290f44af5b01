"""The build that was chosen is the one a worker imports."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from localllm.core.launch import LaunchPlan
from localllm.engines.builds.shelf import Build, Shelf
from localllm.engines.llama_cpp.engine import LlamaCppEngine
from tests.support.tiny_gguf import write_tiny_gguf

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (extra `llama-cpp`)")
pytestmark = pytest.mark.llama_cpp


def build_beside(root: Path) -> tuple[Shelf, Build]:
    """The environment's llama-cpp-python again, on a shelf, with a mark that it was imported."""
    spec = find_spec("llama_cpp")
    assert spec is not None
    assert spec.origin is not None
    shelf = Shelf(root / "builds")
    staged = root / "builds" / ".staged"
    shutil.copytree(
        Path(spec.origin).parent, staged / "llama_cpp", ignore=shutil.ignore_patterns("__pycache__")
    )
    package = staged / "llama_cpp" / "__init__.py"
    package.write_text(package.read_text() + f"\nopen({str(root / 'imported')!r}, 'w').close()\n")
    build = Build(name="9.9.9-cpu", version="9.9.9", backend="cpu", kind="source", installed_at=0.0)
    shelf.publish(staged, build)
    return shelf, build


async def test_a_worker_runs_the_build_in_use(tmp_path: Path) -> None:
    shelf, build = build_beside(tmp_path)
    plan = LaunchPlan(
        model_path=str(write_tiny_gguf(tmp_path / "m.gguf", "llama")), context_length=256, threads=1
    )
    engine = LlamaCppEngine(log_dir=tmp_path / "log", shelf=shelf)
    assert (await engine.status()).version != build.version
    shelf.use(build.name)
    assert (await engine.status()).version == build.version
    instance = await engine.load(plan, lambda progress: None)
    await instance.unload()
    assert (tmp_path / "imported").exists()
