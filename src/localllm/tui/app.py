"""The terminal app: five screens over one frozen state, fed by one worker that follows the service.

The App knows the service's state, the theme and how errors are shown; everything else lives in the screens.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import work
from textual.app import App, SystemCommand
from textual.reactive import var
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from localllm.core.control import State
from localllm.core.errors import LocalLLMError, NotRunning
from localllm.tui import themes
from localllm.tui.actions import ACTIONS, Scope
from localllm.tui.screens.frame import FrameScreen
from localllm.tui.session import Connect, Session, clean_error
from localllm.tui.state import AppState

log = logging.getLogger(__name__)

# Seconds between attempts to reach a service that is gone; the last one repeats.
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


class LocalLLMApp(App[None]):
    """``connect`` finds the service; ``clock`` is Unix time (tests freeze it); ``start_screen`` one of the five by name.

    ``low_bandwidth`` draws what streams at most four times a second, ``ascii_plots`` keeps to ASCII.
    """

    TITLE = "localllm"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = True
    DEFAULT_MODE: ClassVar = Scope.CHAT.value

    state: var[AppState] = var(AppState)

    def __init__(
        self,
        connect: Connect,
        *,
        clock: Callable[[], float] = time.time,
        low_bandwidth: bool = False,
        ascii_plots: bool = False,
        theme: str = themes.DARK.name,
        start_screen: str = Scope.CHAT.value,
    ) -> None:
        super().__init__()
        self.session = Session(
            connect, report=self.show_error, clock=clock, low_bandwidth=low_bandwidth, ascii_plots=ascii_plots
        )
        self._start_screen = start_screen
        self._hurry = asyncio.Event()
        for scope in Scope:
            if scope is not Scope.EVERYWHERE:
                self.add_mode(scope.value, self._maker(scope))
        self.animation_level = "none"
        for own in themes.OWN:
            self.register_theme(own)
        self.theme = theme if theme in self.available_themes else themes.DARK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.DEFAULTS

    async def on_mount(self) -> None:
        await self.switch_mode(self._start_screen)
        # the first frame does not wait for the service, nor for the import of its client
        self.call_after_refresh(self._after_first_frame)

    def _after_first_frame(self) -> None:
        gc.freeze()
        gc.enable()
        self.follow_service()

    # ------------------------------------------------------------ the service's state

    @work(exclusive=True, group="follow", exit_on_error=False)
    async def follow_service(self) -> None:
        """Keep ``state`` up to date for as long as the app runs; reconnect when the line is lost."""
        failures = 0
        while True:
            trouble, asked = "The service closed the line.", self.session.start_service
            try:
                async for event in self.session.events():
                    failures = 0
                    now = self.session.clock()
                    known = self.state
                    self.state = (
                        known.with_snapshot(event, now)
                        if isinstance(event, State)
                        else known.with_delta(event, now)
                    )
            except LocalLLMError as error:
                trouble = clean_error(error).message
                if not isinstance(error, NotRunning):
                    trouble = f"{trouble} {error.hint or ''}"
                elif asked:
                    # it did not come up: its last words are in the hint
                    self.show_error(error)
            self.state = self.state.with_loss(trouble)
            await self._pause(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1

    async def _pause(self, seconds: float) -> None:
        """Wait before the next attempt, shorter when the person asks for the service."""
        self._hurry.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._hurry.wait()
        except TimeoutError:
            pass

    def start_service(self) -> None:
        """Bring up a local service at the next attempt, which is now."""
        self.session.start_service = True
        self._hurry.set()

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Following the service must never end by accident: what nobody foresaw is shown, and it begins anew."""
        if event.state is WorkerState.ERROR and event.worker.group == "follow":
            log.error("following the service failed", exc_info=event.worker.error)
            self.state = self.state.with_loss(f"{type(event.worker.error).__name__}: {event.worker.error}")
            self.set_timer(RETRY_SECONDS[-1], self.follow_service)

    def watch_state(self, state: AppState) -> None:
        """Hand the state to the screen that is shown; the others take it when they are."""
        for screen in self.screen_stack:
            if isinstance(screen, FrameScreen):
                screen.state = state

    def on_frame_screen_resumed(self, event: FrameScreen.Resumed) -> None:
        event.screen.state = self.state

    def show_error(self, error: LocalLLMError) -> None:
        """The one way an error reaches the person: what happened, and what to do."""
        self.notify(error.hint or "", title=error.message, severity="error", timeout=8, markup=False)

    # ------------------------------------------------------------ commands

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: the actions of this screen and of everywhere, and the themes."""
        if not isinstance(screen, FrameScreen):
            return
        for action in ACTIONS:
            if action.palette and action.scope in (screen.scope, Scope.EVERYWHERE):
                run = _runner(screen, action.name)
                yield SystemCommand(f"{action.label.capitalize()}  {action.shown_key}", action.help, run)
        for name in sorted(self.available_themes, key=lambda n: (not n.startswith("localllm"), n)):
            yield SystemCommand(f"Theme {name}", "Use these colours", lambda name=name: self._use_theme(name))

    def _use_theme(self, name: str) -> None:
        self.theme = name

    def _maker(self, scope: Scope) -> Callable[[], FrameScreen]:
        """Builds one screen when it is first shown: what is not looked at is not even imported."""

        def make() -> FrameScreen:
            from importlib import import_module

            module = import_module(f"localllm.tui.screens.{scope.value}")
            screen: FrameScreen = getattr(module, f"{scope.value.title()}Screen")(self.session)
            screen.set_reactive(FrameScreen.state, self.state)
            return screen

        return make


def _runner(screen: FrameScreen, action: str) -> Callable[[], object]:
    async def run() -> None:
        await screen.run_action(action)

    return run
