"""Opening the terminal app: the one place where the command line hands the terminal over."""

from __future__ import annotations

from localllm.cli.session import Remote


def open_app(remote: Remote, *, screen: str | None = None, model: str | None = None) -> int:
    """Run the terminal app until it is left; its exit code.

    Whatever can be known to be wrong before the screen is taken (a bad key, no such host) is raised as an error first.
    """
    from localllm.settings.paths import resolve_paths
    from localllm.tui.main import run_app

    return run_app(resolve_paths(), host=remote.host, key=remote.key, screen=screen, model=model)
