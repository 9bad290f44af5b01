"""The field that `/` opens above a list; escape empties and closes it."""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.widgets import Input


class SearchBar(Input):
    """Hidden until `open`; `Changed` of Input goes out as `Sought` with the stripped text."""

    DEFAULT_CSS = """
    SearchBar { display: none; height: 1; border: none; padding: 0 1; background: $panel; }
    SearchBar:focus { border: none; }
    SearchBar.-open { display: block; }
    """

    class Sought(Message):
        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    class Left(Message):
        """The field was left with its words standing (enter or down)."""

    def __init__(self, placeholder: str) -> None:
        super().__init__(placeholder=placeholder, compact=True, select_on_focus=False)
        self.cursor_blink = False

    def open(self) -> None:
        self.add_class("-open")
        self.focus()

    def close(self) -> None:
        """Empty it, hide it, and say so."""
        self.remove_class("-open")
        if self.value:
            self.value = ""

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Sought(event.value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Left())

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.close()
            self.post_message(self.Left())
        elif event.key == "down":
            event.stop()
            self.post_message(self.Left())
