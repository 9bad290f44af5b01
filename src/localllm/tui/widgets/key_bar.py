"""The last row: the keys that work here and now, from the ACTIONS table."""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.reactive import var

from localllm.tui.actions import Action, Scope, bar
from localllm.tui.widgets.line import Line, text


class KeyBar(Line):
    """``typing`` in (text has the focus), `Chosen` out when a key is clicked."""

    DEFAULT_CSS = "KeyBar { padding: 0 1; }"

    typing: var[bool] = var(False)

    class Chosen(Message):
        def __init__(self, action: Action) -> None:
            super().__init__()
            self.action = action

    def __init__(self, scope: Scope) -> None:
        super().__init__()
        self._scope = scope
        self._spans: list[tuple[range, Action]] = []

    def watch_typing(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def on_click(self, event: events.Click) -> None:
        for columns, action in self._spans:
            if event.x in columns:
                self.post_message(self.Chosen(action))

    def _draw(self) -> None:
        width = self.content_size.width
        if not width:
            return
        offered = list(bar(self._scope, typing=self.typing))
        hint = [("esc", "keys")] if self.typing else []
        # the screen's own later keys go first when there is no room; search, help and detach stay
        while offered and _length(offered, hint) > width:
            own = [a for a in offered if (a.bar or 0) < 90] or offered
            offered.remove(own[-1])
        line = text()
        spans: list[tuple[range, Action]] = []
        gap_at = next((i for i, a in enumerate(offered) if (a.bar or 0) >= 90), len(offered))
        gap = width - _length(offered, hint)
        for index, action in enumerate(offered):
            if index == gap_at:
                line = line + " " * gap
            start = line.cell_length
            line = line + text((action.shown_key, "bold $accent"), (f" {action.label}", "$quiet"))
            spans.append((range(start, line.cell_length), action))
            line = line + "  "
        for key, label in hint:
            line = line + text((key, "bold $accent"), (f" {label}", "$quiet"))
        self._spans = spans
        self.say(line)


def _length(offered: list[Action], hint: list[tuple[str, str]]) -> int:
    cells = [len(a.shown_key) + 1 + len(a.label) for a in offered]
    cells += [len(key) + 1 + len(label) for key, label in hint]
    return sum(cells) + 2 * max(0, len(cells) - 1)
