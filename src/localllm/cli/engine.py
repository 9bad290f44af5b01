"""``localllm engine``: which engines are here, and getting the right build of llama-cpp-python for this machine."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from importlib import metadata

import click
from msgspec import Struct

from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, paint, table
from localllm.cli.session import json_option
from localllm.core.errors import LoadFailed
from localllm.engines.builds.choice import Attempt
from localllm.engines.builds.shelf import Build, Shelf


class EngineLine(Struct, frozen=True, kw_only=True):
    """One engine or build as ``engine list`` shows it. ``in_use``: it is the one that would run."""

    engine: str
    name: str | None
    version: str | None
    backend: str | None
    where: str
    in_use: bool
    note: str | None = None


class EngineList(Struct, frozen=True):
    engines: tuple[EngineLine, ...]
    damaged: tuple[str, ...]


@click.group()
def command() -> None:
    """Engines on this machine: list them, install a build of llama-cpp-python, choose which one runs.

    Builds lie side by side and outside of localllm's own environment: one that fails to install or to start leaves what
    worked as it was.
    """


@command.command("list")
@json_option
def list_engines(as_json: bool) -> None:
    """What is installed, with what it can use, and which one is in use."""
    found = EngineList(tuple(_engines()), _shelf().damaged())
    emit(Result("engines", found, lambda: _lines(found)), as_json=as_json)


@command.command()
@click.argument(
    "backend", required=False, type=click.Choice(["cpu", "cuda", "metal", "vulkan", "rocm", "sycl"])
)
@click.option(
    "--source", is_flag=True, help="Build for exactly this machine, even where a prebuilt wheel exists."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and stop.")
@json_option
def install(backend: str | None, source: bool, dry_run: bool, as_json: bool) -> None:
    """Install the llama-cpp-python build that fits this machine (or BACKEND), and use it from then on."""
    from localllm.engines.builds.choice import Backend, choose_build, cuda_of_driver
    from localllm.engines.builds.install import install_build
    from localllm.hardware.detect import detect

    machine = detect()
    choice = choose_build(
        machine,
        backend=Backend(backend) if backend else None,
        source_only=source,
        cuda_version=next((v for g in machine.gpus if (v := cuda_of_driver(g.driver))), None),
        python=(sys.version_info.major, sys.version_info.minor),
    )
    if dry_run:
        emit(
            Result("build_choice", choice, lambda: iter([choice.reason, *map(_attempt, choice.attempts)])),
            as_json=as_json,
        )
        return
    say(choice.reason)
    shelf = _shelf()
    build = install_build(choice, shelf, say=say)
    shelf.use(build.name)
    emit(Result("build", build, lambda: iter([_installed(build)])), as_json=as_json)


@command.command()
@click.argument("name")
def use(name: str) -> None:
    """Run the build NAME from now on; ``own`` goes back to the one in localllm's environment. Loaded models keep theirs."""
    _shelf().use(None if name == "own" else name)
    say(
        f"The llama_cpp engine runs {'the build of its own environment' if name == 'own' else name} from the next load on."
    )


@command.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete the build NAME."""
    _shelf().remove(name)
    say(f"{name} is gone.")


def _shelf() -> Shelf:
    from localllm.settings.paths import resolve_paths

    return Shelf(resolve_paths().builds_dir)


def _engines() -> Iterator[EngineLine]:
    from localllm.engines.builds.install import probe_build

    shelf = _shelf()
    in_use = shelf.in_use()
    bundled = _version("xllamacpp")
    if bundled:
        yield EngineLine(
            engine="llama_server",
            name=None,
            version=bundled,
            backend=None,
            where="this environment",
            in_use=True,
        )
    for name in ("llama-server", "ollama"):
        if found := shutil.which(name):
            yield EngineLine(
                engine=name.replace("-", "_"),
                name=None,
                version=None,
                backend=None,
                where=found,
                in_use=False,
            )
    if own := _version("llama-cpp-python"):
        note: str | None = None
        backend: str | None = None
        try:
            probed = probe_build(None)
            backend = _backend(probed.can_offload, probed.devices)
        except LoadFailed as error:
            note = error.message
        yield EngineLine(
            engine="llama_cpp",
            name="own",
            version=own,
            backend=backend,
            where="this environment",
            in_use=in_use is None and note is None,
            note=note,
        )
    for build in shelf.builds():
        yield EngineLine(
            engine="llama_cpp",
            name=build.name,
            version=build.version,
            backend=build.backend,
            where=str(shelf.path_of(build.name)),
            in_use=build == in_use,
        )


def _backend(can_offload: bool, devices: tuple[str, ...]) -> str:
    return next((d for d in devices if d != "CPU"), "gpu") if can_offload else "cpu"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _lines(found: EngineList) -> Iterator[str]:
    columns = [
        Column(""),
        Column("engine"),
        Column("build"),
        Column("version"),
        Column("backend"),
        Column("where"),
    ]
    yield from table(
        columns,
        [
            ("●" if e.in_use else " ", e.engine, e.name, e.version, e.backend, e.note or e.where)
            for e in found.engines
        ],
    )
    if found.damaged:
        yield paint("Left over from an install that was cut short: ", "yellow") + ", ".join(found.damaged)
    if not any(e.engine == "llama_cpp" for e in found.engines):
        yield "llama-cpp-python is not installed; get the build for this machine with: localllm engine install"


def _attempt(attempt: Attempt) -> str:
    if attempt.kind == "prebuilt":
        return f"  prebuilt wheel from {attempt.index}"
    needs = f", which needs {', '.join(attempt.needs)}" if attempt.needs else ""
    return f"  from source with {' '.join(attempt.cmake) or 'no flags'}{needs}"


def _installed(build: Build) -> str:
    return f"llama-cpp-python {build.version} ({build.backend}, {build.kind}) is in use as {build.name}."
