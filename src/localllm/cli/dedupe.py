"""``localllm dedupe``: models whose file lies on this machine more than once, in the stores of several tools."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Result, emit
from localllm.cli.session import json_option
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from localllm.hub.store import StoredModel


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Files of the same content in several stores, and the space that one copy instead of several would give back.

    Nothing is changed: what belongs to another tool is removed there, and what is ours with: localllm rm
    """
    from localllm.cli.local_store import local_store
    from localllm.core.units import format_bytes
    from localllm.hub.discover import HeaderNotes, discover, duplicates, models_from, places_from
    from localllm.settings.load import load_settings
    from localllm.settings.paths import resolve_paths

    folders = load_settings(resolve_paths()).settings.models.folders
    own = local_store().list()
    found = discover(places_from(os.environ, folders=folders))
    others = models_from(found, HeaderNotes(), (model.name for model in own), budget_s=0)
    groups = duplicates((*own, *others))
    wasted = sum(group[0].size_bytes * (len(group) - 1) for group in groups)
    data = {
        "reclaimable_bytes": wasted,
        "groups": [
            {
                "sha256": group[0].sha256,
                "size_bytes": group[0].size_bytes,
                "models": [_entry(m) for m in group],
            }
            for group in groups
        ],
    }
    emit(Result("duplicates", data, lambda: _lines(groups)), as_json=as_json)
    if not as_json:
        say(f"{format_bytes(wasted)} could be given back." if groups else "No file is here twice.")


def _entry(model: StoredModel) -> dict[str, str]:
    return {"name": model.name, "owner": model.owner, "path": str(model.path)}


def _lines(groups: Sequence[Sequence[StoredModel]]) -> Iterator[str]:
    from localllm.core.units import format_bytes

    for group in groups:
        yield f"{format_bytes(group[0].size_bytes)}, {len(group)} times:"
        for model in group:
            yield clean_text(f"  {model.name}  ({model.owner})  {model.path}")
