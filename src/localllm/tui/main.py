"""How the terminal app is started: look at the terminal, draw, connect behind the first frame, leave cleanly."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from localllm.core.errors import LocalLLMError
from localllm.settings.paths import resolve_paths
from localllm.tui.backend import Backend
from localllm.tui.terminal import draw_in_ascii, end_with, look

if TYPE_CHECKING:
    from textual.app import App

    from localllm.tui.session import Connect


class NoTerminal(LocalLLMError):
    """The app needs a terminal it can draw on."""

    code = "no_terminal"


def run_app(
    *,
    host: str | None = None,
    key: str | None = None,
    low_bandwidth: bool | None = None,
    start_screen: str = "chat",
    theme: str | None = None,
    ascii_plots: bool | None = None,
    connect: Connect | None = None,
    env: Mapping[str, str] = os.environ,
) -> int:
    """Run the app until the person leaves it; the exit code.

    ``host`` (``name:port`` or a URL) and ``key`` choose another machine's service; without them the local one is
    started on demand. ``connect`` finds a service in another way. None for the rest takes the settings, and low
    bandwidth over SSH.

    Raises:
        NoTerminal: stdin or stdout is no terminal, or one that cannot be drawn on (TERM=dumb).
    """
    stream = sys.__stderr__
    is_tty = all(s is not None and s.isatty() for s in (sys.__stdin__, sys.__stdout__))
    terminal = look(env, stream.encoding if stream else None, is_tty=is_tty)
    if not terminal.usable:
        raise NoTerminal(
            "The app needs a terminal that it can draw on.",
            hint="Ask one question with `localllm run MODEL PROMPT`, or see the service with `localllm status`.",
        )
    if not terminal.utf8:
        draw_in_ascii()

    # what follows costs 150 ms, which only those pay who get an app. Nothing is garbage before the first frame
    # (the App collects again from then on): without pauses for it that frame comes a seventh earlier.
    gc.disable()
    from localllm.settings.load import load_settings
    from localllm.tui.app import LocalLLMApp

    paths = resolve_paths(env)
    # a mistake in the file must not keep anyone from the screen that shows it
    wanted = load_settings(paths, env, tolerant=True).settings.ui
    calm = wanted.low_bandwidth == "on" or (wanted.low_bandwidth == "auto" and terminal.over_ssh)

    async def find_service(*, start: bool) -> Backend:
        # the client brings an HTTP stack with it: it is imported behind the first frame
        module = await asyncio.to_thread(importlib.import_module, "localllm.client.connect")
        found: Backend = await module.connect(paths, host, key, start=start)
        return found

    app = LocalLLMApp(
        connect or find_service,
        low_bandwidth=calm if low_bandwidth is None else low_bandwidth,
        ascii_plots=(wanted.plots == "ascii" or not terminal.utf8) if ascii_plots is None else ascii_plots,
        theme=theme or wanted.theme,
        start_screen=start_screen,
    )
    end_with(sys.__stdin__.fileno() if sys.__stdin__ is not None else 0)
    asyncio.run(_until_left(app))
    return app.return_code or 0


async def _until_left(app: App[None]) -> None:
    """Run the app; a hang-up or a polite kill ends it as ``q`` does, with the terminal as it was before."""
    loop = asyncio.get_running_loop()
    for name in ("SIGHUP", "SIGTERM"):
        # Windows knows neither SIGHUP nor handlers on its loop
        if os.name == "posix":
            loop.add_signal_handler(getattr(signal, name), app.exit)
    await app.run_async()
