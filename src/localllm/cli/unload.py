"""``localllm unload``: give a model's memory back."""

from __future__ import annotations

import click

from localllm.cli.arguments import model_argument
from localllm.cli.output import Result, emit
from localllm.cli.session import Remote, call, json_option, remote_options


@click.command()
@model_argument
@click.option("--force", is_flag=True, help="Do not wait: end the requests that run on it.")
@json_option
@remote_options
def command(model: str, force: bool, as_json: bool, remote: Remote) -> None:
    """Take MODEL out of memory, after the requests that run on it. It loads again when it is asked something."""
    from localllm.core.control import UnloadRequest

    state = call(remote, lambda client: client.unload(UnloadRequest(model=model, force=force)), start=False)
    emit(Result("instance", state, lambda: iter([f"{state.model} is unloaded."])), as_json=as_json)
