"""``localllm gateway``: the port's policies in their order, and what they have done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.output import Column, Result, emit, table
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from localllm.core.gateway import GatewayView


@click.command()
@json_option
@remote_options
def command(as_json: bool, remote: Remote) -> None:
    """The policies of the port in the order a request passes them: on for whom, and what they did since the start.

    They are switched by the settings gateway.*, for everybody, and by each key's own rules.
    """
    view = call(remote, lambda client: client.gateway())
    emit(Result("gateway", view, lambda: _lines(view)), as_json=as_json)


def _lines(view: GatewayView) -> Iterator[str]:
    columns = [Column("policy"), Column("for all"), Column("keys"), Column("since the start")]
    yield from table(
        columns,
        [
            (
                policy.name,
                "on" if policy.on else "off",
                ", ".join(policy.keys) or None,
                ", ".join(f"{name} {value}" for name, value in policy.figures.items()) or None,
            )
            for policy in view.policies
        ],
    )
    keys = "1 key" if view.keys == 1 else f"{view.keys} keys"
    yield f"{keys}; the port {'wants one' if view.key_required else 'is open to this machine'}."
