"""System prompt and sampling of one chat, as a form. Blank means: as the model and the engine would."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from localllm.core.control import ChatSettings
from localllm.tui.widgets.line import text

_FLOATS = {
    "temperature": (
        "Temperature",
        0.0,
        2.0,
        "0 = the likeliest token; more = freer",
    ),
    "top_p": ("Top p", 0.0, 1.0, "the likeliest up to this share"),
    "min_p": ("Min p", 0.0, 1.0, "none below this share of the likeliest"),
}
_INTS = {
    "top_k": ("Top k", 0, 1_000_000, "so many of the likeliest; 0 = all"),
    "max_tokens": ("Max tokens", 1, 1_000_000, "the longest answer; blank = what fits"),
    "seed": ("Seed", 0, 2**32 - 1, "same seed, same answer; blank = new"),
}


class ChatOptions(ModalScreen[ChatSettings | None]):
    """Dismisses with the changed settings (^s), or None (esc)."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar = [
        Binding("ctrl+s", "take", "save", priority=True),
        Binding("escape", "dismiss(None)", "cancel"),
    ]

    def __init__(self, settings: ChatSettings) -> None:
        super().__init__()
        self._settings = settings

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog -page", can_focus=False) as page:
            page.border_title = Content("Options of this chat")
            page.border_subtitle = text(("^s", "$accent"), " save  ", ("esc", "$accent"), " cancel")
            yield Static(text(("System prompt", "bold")), markup=False)
            area = TextArea(self._settings.system or "", id="system", tab_behavior="focus", compact=True)
            area.cursor_blink = False
            yield area
            for key, (label, low, high, help_text) in (_FLOATS | _INTS).items():
                value = getattr(self._settings, key)
                with Horizontal(classes="field"):
                    yield Static(text((label.ljust(12), "$foreground")), markup=False, classes="field--label")
                    field = Input(
                        "" if value is None else f"{value:g}" if isinstance(value, float) else str(value),
                        id=key,
                        compact=True,
                        placeholder=f"{low:g}…{high:g}" if key in _FLOATS else "default",
                    )
                    field.cursor_blink = False
                    yield field
                    yield Static(text((help_text, "$quiet")), markup=False, classes="field--help")

    def on_input_submitted(self) -> None:
        self.action_take()

    def action_take(self) -> None:
        """Check every field; the first that is wrong keeps the form open."""
        numbers: dict[str, float | int | None] = {}
        for key, (label, low, high, _) in (_FLOATS | _INTS).items():
            words = self.query_one(f"#{key}", Input).value.strip()
            try:
                value = None if not words else float(words) if key in _FLOATS else int(words)
                if value is not None and not low <= value <= high:
                    raise ValueError
            except ValueError:
                self.query_one(f"#{key}", Input).focus()
                self.notify(f"{label} is a number from {low:g} to {high:g}, or blank.", severity="error")
                return
            numbers[key] = value
        system = self.query_one("#system", TextArea).text.strip() or None
        self.dismiss(msgspec.structs.replace(self._settings, system=system, **numbers))
