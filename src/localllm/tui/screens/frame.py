"""What all five screens share: tabs above, status strip and keys below, and the way state comes in.

A screen overrides `body` for its widgets, `facts` for what to do with a new state, and the actions of its scope.
"""

from __future__ import annotations

import logging
from typing import ClassVar, Protocol, runtime_checkable

from textual import events, work
from textual.app import ComposeResult
from textual.message import Message
from textual.reactive import var
from textual.screen import Screen
from textual.widgets import Input, TextArea
from textual.worker import Worker, WorkerState

from localllm.core.control import ShutdownRequest
from localllm.core.errors import LocalLLMError
from localllm.tui.actions import Scope, bindings
from localllm.tui.screens.dialogs import Confirm
from localllm.tui.session import Session
from localllm.tui.state import AppState, Link
from localllm.tui.widgets.banner import Banner
from localllm.tui.widgets.key_bar import KeyBar
from localllm.tui.widgets.search_bar import SearchBar
from localllm.tui.widgets.status_strip import StatusStrip
from localllm.tui.widgets.top_bar import TopBar

log = logging.getLogger(__name__)

# Below 72 columns panes are hidden, from 110 on there is room for all of them; 24 lines are the short case.
WIDTHS = [(0, "-narrow"), (72, "-medium"), (110, "-wide")]
HEIGHTS = [(0, "-short"), (32, "-tall")]


@runtime_checkable
class ServiceStarter(Protocol):
    """An app that can bring the service up."""

    def start_service(self) -> None: ...


class FrameScreen(Screen[None]):
    """``state`` in from the App while the screen is shown; the screen's own workers talk to ``session``."""

    BINDINGS = bindings(Scope.EVERYWHERE)
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    class Resumed(Message):
        """The screen is shown (again) and wants the facts of now."""

        def __init__(self, screen: FrameScreen) -> None:
            super().__init__()
            self.screen = screen

    scope: ClassVar[Scope]
    state: var[AppState] = var(AppState)

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def compose(self) -> ComposeResult:
        yield TopBar(self.scope).data_bind(FrameScreen.state)
        yield Banner().data_bind(FrameScreen.state)
        yield from self.body()
        yield StatusStrip(ascii_plots=self.session.ascii_plots).data_bind(FrameScreen.state)
        yield KeyBar(self.scope)

    def body(self) -> ComposeResult:
        """The widgets between the tabs and the strip."""
        raise NotImplementedError

    def facts(self, state: AppState) -> None:
        """A new state is there and the screen is built."""

    def watch_state(self, state: AppState) -> None:
        if self.is_mounted:
            self.facts(state)

    def on_mount(self) -> None:
        self.facts(self.state)

    def on_screen_resume(self) -> None:
        self.post_message(self.Resumed(self))

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self.query_one(KeyBar).typing = isinstance(event.widget, Input | TextArea)

    def on_descendant_blur(self) -> None:
        self.query_one(KeyBar).typing = isinstance(self.focused, Input | TextArea)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker that raised something nobody foresaw: keep it for the log, tell the person, go on."""
        if event.state is WorkerState.ERROR:
            error = event.worker.error
            log.error("worker %s failed", event.worker.name, exc_info=error)
            self.session.report(LocalLLMError(f"Something went wrong: {type(error).__name__}: {error}"))

    async def on_key_bar_chosen(self, event: KeyBar.Chosen) -> None:
        await self.run_action(event.action.name)

    async def on_top_bar_chosen(self, event: TopBar.Chosen) -> None:
        await self.app.switch_mode(event.scope.value)

    # ------------------------------------------------------------ actions that every screen has

    async def action_go(self, mode: str) -> None:
        await self.app.switch_mode(mode)

    def action_search(self) -> None:
        """Open the screen's search field, where there is one."""
        for bar in self.query(SearchBar):
            bar.open()

    def action_leave(self) -> None:
        """Nothing is open: screens with fields say what escape closes."""

    def action_start_service(self) -> None:
        """Start the service when it is down; nothing happens when it is up."""
        if self.state.link is Link.LOST and isinstance(self.app, ServiceStarter):
            self.app.start_service()

    async def action_help(self) -> None:
        from localllm.tui.screens.help import Help

        await self.app.push_screen(Help(self.scope))

    def action_detach(self) -> None:
        self.app.exit()

    @work(exclusive=True, group="stop_service", exit_on_error=False)
    async def action_stop_service(self) -> None:
        live = self.state.service.live if self.state.service else None
        busy = (live.running + live.waiting) if live else 0
        consequence = (
            f"{busy} requests are running; they get 30 seconds to end." if busy else "No request is running."
        )
        if await self.app.push_screen_wait(Confirm("Stop the service?", consequence, "stop it")):
            await self.session.ask(lambda service: service.shutdown(ShutdownRequest()))
            self.app.exit()
