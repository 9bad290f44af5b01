"""A model for the verbs that measure it themselves: its file, its facts, and a plan for this machine."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from localllm.core.facts import ModelFacts, facts_from_header
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Machine
from localllm.core.plan import Wish, plan_load


class LocalModel(NamedTuple):
    """``key`` identifies the file over time: its digest where the store knows it, else its name and size."""

    name: str
    path: Path
    facts: ModelFacts
    key: str


def find_local_model(model: str) -> LocalModel:
    """A name in the store, or a path that ends in .gguf.

    Raises:
        ModelNotFound, GGUFError: there is none, or it cannot be read.
    """
    from localllm.cli.local_store import local_store
    from localllm.hub.gguf_file import read_header

    if model.endswith(".gguf"):
        path = Path(model).expanduser()
        facts = facts_from_header(read_header(path))
        return LocalModel(path.stem, path, facts, f"file:{path.name}:{facts.size_bytes}")
    stored = local_store().get(model)
    facts = facts_from_header(read_header(stored.path))
    return LocalModel(stored.name, stored.path, facts, stored.key)


def plan_for(
    model: LocalModel,
    machine: Machine,
    *,
    tokens: int,
    threads: int | None,
    gpu_layers: int | None,
    kv_type: str,
) -> LaunchPlan:
    """A plan with room for ``tokens`` in one sequence. Raises DoesNotFit."""
    wish = Wish(context_length=tokens, parallel=1, kv_type=kv_type, threads=threads, gpu_layers=gpu_layers)
    return plan_load(model.facts, machine, wish, model_path=str(model.path)).launch


def this_machine() -> Machine:
    """One reading of this machine: with its memory bandwidth (measured once, then remembered) and ``hardware.overrides``.

    Raises HardwareError for an override that cannot be read.
    """
    from localllm.hardware.remembered import detect_here
    from localllm.settings.paths import resolve_paths

    return detect_here(cache_dir=resolve_paths().cache_dir, overrides=local_overrides())


def local_overrides() -> dict[str, str]:
    """``hardware.overrides`` and ``engine.memory_margin_bytes`` of this machine's settings. Raises HardwareError for one that cannot be read."""
    from localllm.hardware.overrides import parse_overrides
    from localllm.settings.load import load_settings
    from localllm.settings.paths import resolve_paths

    settings = load_settings(resolve_paths(), tolerant=True).settings
    return parse_overrides(settings.hardware.overrides, margin_bytes=settings.engine.memory_margin_bytes)


def build_in_use() -> Path | None:
    """The folder of the llama-cpp-python build in use; None = the one of this environment."""
    from localllm.engines.builds.shelf import Shelf
    from localllm.settings.paths import resolve_paths

    shelf = Shelf(resolve_paths().builds_dir)
    build = shelf.in_use()
    return shelf.path_of(build.name) if build else None
