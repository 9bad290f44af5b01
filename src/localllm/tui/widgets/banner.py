"""The row under the tabs that is only there when something must be seen: a lost line, or a notice of the service."""

from __future__ import annotations

from textual.reactive import var

from localllm.tui.state import AppState, Link
from localllm.tui.widgets.line import Line, clipped, text

_RANK = {"error": 2, "warning": 1, "info": 0}


class Banner(Line):
    """``state`` in; hides itself when there is nothing to say."""

    DEFAULT_CSS = """
    Banner { display: none; padding: 0 1; color: $background; text-style: bold; }
    Banner.-error { display: block; background: $error; }
    Banner.-warning { display: block; background: $warning; }
    """

    state: var[AppState] = var(AppState)

    def watch_state(self, state: AppState) -> None:
        level, words = self._worst(state)
        self.set_class(level == "error", "-error")
        self.set_class(level == "warning", "-warning")
        if level is not None:
            self.say(text(clipped(words, max(10, self.app.size.width - 2))))

    def _worst(self, state: AppState) -> tuple[str | None, str]:
        if state.link is Link.LOST:
            return "error", f"{state.trouble or 'The line is gone.'}  Trying again; S starts it."
        notices = state.service.notices if state.service else ()
        worst = max(notices, key=lambda n: (_RANK[n.level], n.since), default=None)
        if worst is None or worst.level == "info":
            return None, ""
        return worst.level, worst.text
