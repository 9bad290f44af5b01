"""``localllm completions``: the script that teaches a shell our verbs, options and model names."""

from __future__ import annotations

import os

import click

_WHERE = {
    "bash": "~/.local/share/bash-completion/completions/localllm",
    "zsh": "~/.zfunc/_localllm   (with fpath+=~/.zfunc before compinit)",
    "fish": "~/.config/fish/completions/localllm.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(tuple(_WHERE)), required=False)
def command(shell: str | None) -> None:
    """Print the completion script for SHELL (default: the one you are in).

    \b
    bash:  localllm completions bash > ~/.local/share/bash-completion/completions/localllm
    zsh:   localllm completions zsh  > ~/.zfunc/_localllm
    fish:  localllm completions fish > ~/.config/fish/completions/localllm.fish
    """
    chosen = shell or os.path.basename(os.environ.get("SHELL", "bash"))  # noqa: PTH119 - a name, not a path
    if chosen not in _WHERE:
        raise click.UsageError(f"No completions for {chosen!r}; there are: {', '.join(_WHERE)}.")
    click.echo(completion_script(chosen))


def completion_script(shell: str) -> str:
    """The script that click generates for ``shell`` (bash, zsh or fish)."""
    from click.shell_completion import get_completion_class

    from localllm.cli.main import cli

    cls = get_completion_class(shell)
    if cls is None:
        raise click.UsageError(f"No completions for {shell!r}.")
    return cls(cli, {}, "localllm", "_LOCALLLM_COMPLETE").source()
