"""The small windows that ask: yes or no, a line of text, one of a list. Each dismisses with its answer or None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localllm.tui.widgets.line import text


class Confirm(ModalScreen[bool]):
    """A question with consequences: ``y`` does it, anything that closes does not."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,q", "answer(False)", "no"),
    ]

    def __init__(self, question: str, consequence: str, verb: str) -> None:
        super().__init__()
        self._question, self._consequence, self._verb = question, consequence, verb

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -danger"):
            yield Static(text((self._question, "bold")), markup=False)
            yield Static(text((self._consequence, "$quiet")), markup=False)
            yield Static(
                text(("y", "bold $error"), f" {self._verb}    ", ("n", "bold $accent"), " leave it"),
                markup=False,
            )

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Prompt(ModalScreen[str | None]):
    """One line of text; enter takes it, escape does not."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar = [Binding("escape", "dismiss(None)", "cancel")]

    def __init__(self, title: str, *, value: str = "", hint: str = "", secret: bool = False) -> None:
        super().__init__()
        self._title, self._value, self._hint, self._secret = title, value, hint, secret

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self._title)
            field = Input(self._value, password=self._secret, compact=True)
            field.cursor_blink = False
            yield field
            yield Static(text((self._hint, "$quiet")), markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


class Picker(ModalScreen[str | None]):
    """One of a list; each choice is (key, line). Typing is not needed: the lists are short."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar = [Binding("escape,q", "dismiss(None)", "cancel")]

    def __init__(
        self, title: str, choices: Sequence[tuple[str, Content]], *, current: str | None = None
    ) -> None:
        super().__init__()
        self._title, self._choices, self._current = title, tuple(choices), current

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as dialog:
            dialog.border_title = Content(self._title)
            yield OptionList(*(Option(line) for _, line in self._choices), markup=False)

    def on_mount(self) -> None:
        keys = [key for key, _ in self._choices]
        self.query_one(OptionList).highlighted = keys.index(self._current) if self._current in keys else 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._choices[event.option_index][0])


class Details(ModalScreen[None]):
    """A page of figures to read, scrolled with the arrows."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar = [Binding("escape,q,enter,d", "dismiss(None)", "close")]

    def __init__(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._title, self._rows = title, tuple(rows)

    def compose(self) -> ComposeResult:
        from textual.containers import VerticalScroll

        width = max((len(name) for name, _ in self._rows), default=0) + 2
        with VerticalScroll(classes="dialog -page") as page:
            page.border_title = Content(self._title)
            page.border_subtitle = Content("esc closes")
            for name, value in self._rows:
                yield Static(text((name.ljust(width), "$quiet"), value), markup=False)
