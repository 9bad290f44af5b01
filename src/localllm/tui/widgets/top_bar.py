"""The first row: the name, the five screens, and which service this is."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import var

from localllm.tui.actions import Scope
from localllm.tui.state import AppState, Link
from localllm.tui.widgets.line import Line, clipped, text

TABS = (Scope.CHAT, Scope.MODELS, Scope.MONITOR, Scope.SERVER, Scope.SETTINGS)
_DOT = {Link.UP: ("●", "$success"), Link.CONNECTING: ("○", "$warning"), Link.LOST: ("●", "$error")}


class TopBar(Line):
    """``state`` in, `Chosen` out when a tab is clicked."""

    DEFAULT_CSS = "TopBar { background: $panel; }"

    state: var[AppState] = var(AppState)

    class Chosen(Message):
        def __init__(self, scope: Scope) -> None:
            super().__init__()
            self.scope = scope

    def __init__(self, active: Scope) -> None:
        super().__init__()
        self._active = active
        self._spans: list[tuple[range, Scope]] = []

    def watch_state(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def on_click(self, event: events.Click) -> None:
        for columns, scope in self._spans:
            if event.x in columns:
                self.post_message(self.Chosen(scope))

    def _draw(self) -> None:
        width = self.size.width
        if not width:
            return
        short = width < 72
        left = text(("▌", "$accent"), ("localllm", "bold $accent"), "  " if width >= 100 else " ")
        spans = []
        for number, scope in enumerate(TABS, start=1):
            active = scope is self._active
            name = scope.value.title()
            if active:
                tab = text((f" {number} {name} ", "bold $background on $accent"))
            elif short:
                tab = text((f" {number} ", "$quiet"))
            else:
                tab = text((f" {number} ", "$quiet"), f"{name} ")
            spans.append((range(left.cell_length, left.cell_length + tab.cell_length), scope))
            left = left + tab
        self._spans = spans
        self.say(_joined(left, self._address(width - left.cell_length - 1), width))

    def _address(self, room: int) -> Content:
        dot, colour = _DOT[self.state.link]
        address = self.state.address or "connecting…"
        if room < 8:
            return text((dot, colour))
        return text((dot + " ", colour), clipped(address, room - 2))


def _joined(left: Content, right: Content, width: int) -> Content:
    gap = width - left.cell_length - right.cell_length - 1
    return left + " " * max(1, gap) + right
