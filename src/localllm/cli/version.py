"""``localllm version``: what is installed, engines included, without importing any of them."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata

import click

from localllm._version import __version__
from localllm.cli.output import Result, emit, pairs
from localllm.cli.session import json_option

_PACKAGES = ("xllamacpp", "llama-cpp-python", "ollama", "textual", "httpx", "starlette")


@click.command()
@json_option
def command(as_json: bool) -> None:
    """The version of localllm, of Python and of the packages that matter when something goes wrong."""
    packages = {name: _installed(name) for name in _PACKAGES}
    data = {
        "localllm": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "packages": packages,
    }

    def lines() -> Iterator[str]:
        yield from pairs(
            [
                ("localllm", __version__),
                ("Python", platform.python_version()),
                ("platform", platform.platform(terse=True)),
                *((name, version or "not installed") for name, version in packages.items()),
            ]
        )

    emit(Result("version", data, lines), as_json=as_json)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
