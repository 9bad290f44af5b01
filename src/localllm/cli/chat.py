"""``localllm chat``: the terminal app, on a chat."""

from __future__ import annotations

import sys

import click

from localllm.cli.arguments import optional_model_argument
from localllm.cli.session import Remote, remote_options


@click.command()
@optional_model_argument
@remote_options
def command(model: str | None, remote: Remote) -> int:
    """Open the terminal app on a new chat, with MODEL if you name one. For one prompt from a script: localllm run"""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("A chat needs a terminal; in a script, use: localllm run MODEL PROMPT")
    from localllm.cli.app import open_app

    return open_app(remote, model=model)
