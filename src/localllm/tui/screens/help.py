"""The help screen: every key, from the ACTIONS table, those of the current screen first."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from localllm.tui.actions import Scope, shown_key, within
from localllm.tui.widgets.line import text


class Help(ModalScreen[None]):
    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar = [Binding("escape,q,question_mark,f10", "dismiss(None)", "close")]

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope

    def compose(self) -> ComposeResult:
        others = [s for s in Scope if s not in (self._scope, Scope.EVERYWHERE)]
        with VerticalScroll(classes="dialog -page") as page:
            page.border_title = Content("Keys")
            page.border_subtitle = Content("esc closes")
            for scope in (self._scope, Scope.EVERYWHERE, *others):
                yield Static(text((scope.value.title(), "bold $accent")), markup=False)
                yield Static(_keys(scope), markup=False, classes="help--keys")


def _keys(scope: Scope) -> Content:
    lines = []
    for action in within(scope):
        keys = "  ".join(shown_key(key) for key in action.keys)
        lines.append(text((f"  {keys:<10}", "bold"), (f" {action.help}", "$quiet")))
    return Content("\n").join(lines)
