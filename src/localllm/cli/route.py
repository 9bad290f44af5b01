"""``localllm route``: where an alias would send a text, without sending it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.output import Result, emit, paint
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from localllm.core.aliases import Route


@click.command()
@click.argument("text")
@click.option("--alias", default="", metavar="NAME", help="Which alias; may be left out where there is one.")
@click.option("--tools", is_flag=True, help="As if the request offered tools.")
@json_option
@remote_options
def command(text: str, alias: str, tools: bool, as_json: bool, remote: Remote) -> None:
    """Say which model TEXT would go to and why, without asking it."""
    from localllm.core.aliases import RouteQuestion

    question = RouteQuestion(text=text, alias=alias, tools=tools)
    route = call(remote, lambda client: client.route(question))
    emit(Result("route", route, lambda: _lines(route)), as_json=as_json)


def _lines(route: Route) -> Iterator[str]:
    first, *rest = route.models
    yield f"{first}  {paint(route.reason, 'dim')}"
    for model in rest:
        yield f"else {model}"
