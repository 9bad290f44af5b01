"""A model for the verbs that plan or measure in their own process: its file, its facts, and a plan for a machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from localllm.core.facts import ModelFacts, facts_from_header
from localllm.core.launch import LaunchPlan
from localllm.core.learn import Corrections
from localllm.core.machine import Machine
from localllm.core.plan import Wish, plan_load

if TYPE_CHECKING:
    from localllm.core.known_models import KnownModel
    from localllm.hub.curated import CuratedModel

USUAL_QUANT = "Q4_K_M"
"""What a model that is not here is planned as, unless its name says another quantisation."""


class LocalModel(NamedTuple):
    """``key`` identifies the file over time: its digest where the store knows it, else its name and size.

    ``here`` is false for a model that is known by its published figures only; its ``path`` is then what its file would
    be called.
    """

    name: str
    path: Path
    facts: ModelFacts
    key: str
    here: bool = True


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


def find_model_or_figures(model: str) -> LocalModel:
    """A model as ``find_local_model`` finds it, else one known by its figures: ``Qwen3-32B``, ``Qwen3-32B:Q6_K``.

    Raises:
        ModelNotFound, GGUFError: it is neither here nor known.
    """
    from localllm.core.errors import BadName, ModelNotFound

    try:
        return find_local_model(model)
    except (BadName, ModelNotFound):
        found = _known(model)
        if found is None:
            raise
        return found


def _known(model: str) -> LocalModel | None:
    """``NAME`` or ``NAME:QUANT`` by its figures, where NAME may have a colon of its own (``qwen3:8b``)."""
    from localllm.core.derive import facts_from_figures
    from localllm.core.quant_mix import known_mix

    base, _, tag = model.rpartition(":")
    quant = tag.upper()
    if not base or not known_mix(quant):
        base, quant = model, USUAL_QUANT
    known = known_by_name(base)
    if known is None:
        return None
    name = known.names[0]
    facts = facts_from_figures(known.figures, quant, name=name)
    file_name = f"{name}-{quant}.gguf"
    return LocalModel(f"{name}:{quant}", Path(file_name), facts, f"known:{file_name}", here=False)


def known_by_name(name: str) -> KnownModel | None:
    """Published figures by the name that people or the catalogue call a model."""
    from localllm.core.known_models import find_known_model

    known = known_models()
    curated = next((m for m in catalogue() if name.lower() in (m.name, *m.aliases)), None)
    if curated is None:
        return find_known_model(name, known)
    found = figures_of(curated, known)
    return structs.replace(found, names=(curated.name, *found.names)) if found is not None else None


def figures_of(model: CuratedModel, known: Sequence[KnownModel]) -> KnownModel | None:
    """The figures of a model of the catalogue; None when they are not known."""
    from localllm.core.known_models import find_known_model

    names = (model.makers_repository or "", *model.repositories, model.title, model.name)
    return next((found for name in names if (found := find_known_model(name, known)) is not None), None)


def known_models() -> tuple[KnownModel, ...]:
    from localllm.core.known_models import parse_known_models
    from localllm.hardware.assets import asset_path

    return parse_known_models(asset_path("known_models.jsonl").read_text("utf-8"))


def catalogue() -> tuple[CuratedModel, ...]:
    """The catalogue's models; none when it cannot be read."""
    from localllm.core.errors import LocalLLMError
    from localllm.hardware.assets import asset_path
    from localllm.hub.curated import read_catalogue

    try:
        return read_catalogue(asset_path("catalogue.json")).models
    except LocalLLMError:
        return ()


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


def machine_for(simulate: str | None) -> Machine:
    """This machine, or the one that ``--simulate`` names. Raises HardwareError."""
    if simulate is None:
        return this_machine()
    from localllm.hardware.simulate import simulate as simulated

    return simulated(simulate)


def speed_ratios(model: LocalModel | None, machine: Machine) -> tuple[float, ...]:
    """What ``localllm bench`` measured on this machine over what was estimated; of ``model`` itself where there is any."""
    from localllm.cli.local_store import local_store
    from localllm.core.errors import LocalLLMError
    from localllm.engines.measurements import MeasurementFile
    from localllm.engines.own_speed import own_ratios
    from localllm.hardware.devices import load_device_table
    from localllm.settings.paths import resolve_paths

    history = MeasurementFile(resolve_paths().measurements_file).read()
    own = [model.key] if model is not None else []
    facts = {model.key: model.facts} if model is not None else {}
    measured = {each.model_key for each in history}
    try:
        stored = local_store().list() if measured else ()
    except LocalLLMError:
        stored = ()
    for other in stored:
        if other.key in measured and other.key not in facts:
            try:
                facts[other.key] = find_local_model(other.name).facts
            except LocalLLMError:
                continue  # a file that cannot be read any more has nothing to say about speed
    return own_ratios(history, facts.get, machine, keys=own, device_table=load_device_table())


def taught_here(machine: Machine) -> Corrections:
    """What loads on this machine have taught, with the build of the usual engine that loaded last."""
    from localllm.core.learn import corrections_from
    from localllm.core.memory import DEFAULT_ENGINE
    from localllm.engines.residuals import ResidualFile
    from localllm.settings.paths import resolve_paths

    if machine.simulated:
        return Corrections()
    seen = [
        each
        for each in ResidualFile(resolve_paths().residuals_file).read()
        if each.ground.build.startswith(f"{DEFAULT_ENGINE} ")
    ]
    build = max(seen, key=lambda each: each.at).ground.build if seen else ""
    return corrections_from(seen, {device.id: build for device in machine.devices})


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
