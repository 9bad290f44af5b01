"""``localllm rm``: remove models from the store."""

from __future__ import annotations

import sys

import click

from localllm.cli.arguments import complete_model
from localllm.cli.output import Result, emit
from localllm.cli.session import Remote, call, json_option, remote_options


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", shell_complete=complete_model)
@click.option("--force", is_flag=True, help="Also when it is loaded: running requests are ended.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@remote_options
def command(models: tuple[str, ...], force: bool, yes: bool, as_json: bool, remote: Remote) -> None:
    """Remove MODELs from the store. A file that was imported with --reference stays where it is."""
    for name in models:
        _remove(name, remote, force=force, ask=not yes and sys.stdin.isatty(), as_json=as_json)


def _remove(name: str, remote: Remote, *, force: bool, ask: bool, as_json: bool) -> None:
    from localllm.core.units import format_bytes

    summary = call(remote, lambda client: client.model(name)).summary
    if ask:
        click.confirm(f"Remove {summary.name} ({format_bytes(summary.size_bytes)})?", abort=True, err=True)
    removed = call(remote, lambda client: client.remove_model(summary.name, force=force))
    text = f"Removed {removed.name}; {format_bytes(removed.freed_bytes)} are free again."
    emit(Result("removed", removed, lambda: iter([text])), as_json=as_json)
