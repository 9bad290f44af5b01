"""The field a person writes in: Enter sends, Ctrl+J makes a new line, and it grows with the text."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.widgets import TextArea

_NEWLINE_KEYS = ("ctrl+j", "shift+enter", "alt+enter")


class Composer(TextArea):
    """`Submitted` out; an empty text is not sent."""

    DEFAULT_CSS = """
    Composer { height: auto; max-height: 8; border: round $line; padding: 0 1; background: $background;
               border-title-color: $quiet; border-subtitle-color: $quiet; }
    Composer:focus { border: round $line-focus; border-title-color: $accent; }
    Composer .text-area--cursor-line { background: $background; }
    """

    @dataclass
    class Submitted(Message):
        text: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(
            id=id, soft_wrap=True, show_line_numbers=False, tab_behavior="focus", highlight_cursor_line=False
        )
        self.cursor_blink = False

    def take(self) -> str:
        """The text, and an empty field."""
        words = self.text
        self.clear()
        return words

    def put(self, words: str) -> None:
        """Replace the text and put the cursor at its end."""
        self.text = words
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            if self.text.strip():
                self.post_message(self.Submitted(self.text))
            return
        if event.key in _NEWLINE_KEYS:
            event.stop()
            event.prevent_default()
            self.insert("\n")
            return
        await super()._on_key(event)
