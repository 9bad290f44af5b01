"""``localllm reset-terminal``: undo what a terminal app sets, for one that was killed before it could."""

from __future__ import annotations

import click


@click.command()
def command() -> None:
    """Mend a terminal that shows no cursor, prints mouse codes or swallows what you type."""
    from localllm.tui.terminal import reset

    reset()
