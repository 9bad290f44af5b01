"""``localllm list``: the models that are here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, table
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from localllm.core.control import ModelList, ModelSummary


@click.command()
@json_option
@remote_options
def command(as_json: bool, remote: Remote) -> None:
    """What is in the store, what other tools keep on this machine, and what of it is loaded.

    Models of Ollama, Hugging Face's cache, llama.cpp's cache, LM Studio and the folders in models.folders run where
    they lie, without a copy.
    """
    found = call(remote, lambda client: client.models())
    emit(Result("models", found, lambda: _lines(found)), as_json=as_json)
    if not found.models and not as_json:
        say("The store is empty. Bring a model with localllm pull or localllm import, or try: localllm demo")


def _lines(found: ModelList) -> Iterator[str]:
    from localllm.core.units import format_bytes, format_context, format_count

    if not found.models:
        return
    columns = [
        Column("name"),
        Column("size", right=True),
        Column("parameters", right=True, spare=2),
        Column("context", right=True, spare=3),
        Column("can", spare=1),
        Column("owner", spare=4),
        Column("state", style=_state_style),
    ]
    yield from table(
        columns,
        [
            (
                model.name,
                format_bytes(model.size_bytes),
                format_count(model.parameters) if model.parameters else None,
                format_context(model.trained_context_length) if model.trained_context_length else None,
                ", ".join(model.capabilities),
                model.owner if model.owner != "localllm" else None,
                _state(model),
            )
            for model in found.models
        ],
    )
    for model in found.models:
        if model.problem:
            yield f"{model.name}: {model.problem}"


def _state(model: ModelSummary) -> str | None:
    if model.loaded:
        return "loaded"
    if model.problem is None:
        return None
    # its header is not for llama.cpp, but its owner has an engine of its own
    return "Ollama only" if model.owner == "ollama" else "broken"


def _state_style(cell: str) -> str | None:
    return {"loaded": "green", "broken": "red", "Ollama only": "yellow"}.get(cell.strip())
