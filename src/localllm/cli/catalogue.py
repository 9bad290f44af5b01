"""``localllm catalogue``: the curated models, and a later list of them from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, table
from localllm.cli.session import json_option

if TYPE_CHECKING:
    from localllm.hub.curated import Catalogue, CuratedModel


@click.group(invoke_without_command=True)
@click.option("--for", "purpose", metavar="PURPOSE", help="Only those good for it: chat, coding, vision …")
@json_option
@click.pass_context
def command(ctx: click.Context, purpose: str | None, as_json: bool) -> None:
    """Models that people really run, small to large; every name here can be pulled. Works without a network."""
    if ctx.invoked_subcommand is not None:
        return
    found = _in_force()
    models = [model for model in found.models if purpose is None or purpose in model.purposes]
    emit(Result("catalogue", models, lambda: _lines(models)), as_json=as_json)
    if not as_json:
        say(f"{len(models)} models, as of {found.revision}. Fetch one with: localllm pull NAME")


@command.command()
@click.argument("url")
@click.option("--sha256", required=True, metavar="HEX", help="The digest that its publisher names.")
@json_option
def update(url: str, sha256: str, as_json: bool) -> None:
    """Take a later catalogue from URL, if its SHA-256 is the one given."""
    import asyncio

    from localllm.hub.curated import fetch_catalogue
    from localllm.settings.paths import resolve_paths

    target = resolve_paths().curated_file
    catalogue = asyncio.run(fetch_catalogue(url, sha256, target))
    text = f"The catalogue is as of {catalogue.revision} now, with {len(catalogue.models)} models."
    result = {"revision": catalogue.revision, "models": len(catalogue.models), "file": str(target)}
    emit(Result("catalogue_update", result, lambda: iter([text])), as_json=as_json)
    if not as_json:
        say("A service that runs takes it up after: localllm restart")


def _in_force() -> Catalogue:
    from localllm.hardware.assets import asset_path
    from localllm.hub.curated import newest_catalogue
    from localllm.settings.paths import resolve_paths

    return newest_catalogue(asset_path("catalogue.json"), resolve_paths().curated_file)


def _lines(models: list[CuratedModel]) -> Iterator[str]:
    from localllm.core.units import format_context, format_count

    columns = [
        Column("pull it as"),
        Column("parameters", right=True),
        Column("per token", right=True, spare=2),
        Column("context", right=True, spare=3),
        Column("good for", spare=1),
        Column("licence", spare=4),
    ]
    yield from table(
        columns,
        [
            (
                model.name,
                format_count(model.parameters),
                format_count(model.active) if model.active else None,
                format_context(model.context_length),
                ", ".join(model.purposes),
                model.licence,
            )
            for model in models
        ],
    )
