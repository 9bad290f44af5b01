"""``localllm search``: models that can be pulled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, table
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from localllm.core.control import SearchResults


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Hits per source.")
@json_option
@remote_options
def command(words: tuple[str, ...], limit: int, as_json: bool, remote: Remote) -> None:
    """Models that match WORDS, in the catalogue and at Hugging Face: a name, a maker, or a purpose such as coding.

    Look at one closely with: localllm pull NAME --dry-run
    """
    found = call(remote, lambda client: client.search(" ".join(words), limit=limit))
    emit(Result("search", found, lambda: _lines(found)), as_json=as_json)
    for problem in found.problems:
        say(f"Not searched: {problem}")
    if not found.hits and not as_json:
        say("Nothing found.")


def _lines(found: SearchResults) -> Iterator[str]:
    from localllm.core.units import format_count

    if not found.hits:
        return
    columns = [
        Column("pull it as"),
        Column("parameters", right=True),
        Column("good for"),
        Column("licence"),
        Column("downloads", right=True),
        Column("", style=lambda cell: "yellow"),
    ]
    yield from table(
        columns,
        [
            (
                hit.reference,
                format_count(hit.parameters) if hit.parameters else None,
                ", ".join(hit.purposes) or None,
                hit.licence,
                format_count(hit.downloads) if hit.downloads is not None else None,
                "gated" if hit.gated else None,
            )
            for hit in found.hits
        ],
    )
