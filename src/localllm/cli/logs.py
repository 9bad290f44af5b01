"""``localllm logs``: the service's own log, from the service or, when it is down, from its file."""

from __future__ import annotations

from pathlib import Path

import click

from localllm.cli.diagnostics import say
from localllm.cli.session import Remote, call, remote_options
from localllm.tui.sanitise import clean_text

_TAIL_BYTES = 4 << 20


@click.command()
@click.option(
    "-n", "--lines", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many."
)
@remote_options
def command(lines: int, remote: Remote) -> None:
    """The last lines of the service's log: JSON, one event a line; never a prompt, an answer or a key."""
    from localllm.core.errors import NotRunning

    try:
        text = call(remote, lambda client: client.logs(lines=lines), start=False)
    except NotRunning:
        if remote.host is not None:
            raise
        text = _from_file(lines)
    for line in text.splitlines():
        click.echo(clean_text(line))


def _from_file(lines: int) -> str:
    from localllm.settings.paths import resolve_paths

    path = resolve_paths().service_log
    say(f"The service is not running; these are the last lines of {path}.")
    return "\n".join(_tail(path, lines))


def _tail(path: Path, lines: int) -> list[str]:
    """The last ``lines`` lines, from at most the last 4 MiB of the file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return []
