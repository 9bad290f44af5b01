"""One row that holds one choice of several: a segmented switch, and a slider over steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.reactive import var

from localllm.tui.widgets.line import Line, text


class Segmented(Line):
    """``options`` side by side; `Changed` out. Keys are bound by the screen, a click chooses."""

    DEFAULT_CSS = "Segmented { padding: 0 1; }"

    index: var[int] = var(0)

    @dataclass
    class Changed(Message):
        choice: Segmented
        value: str

        @property
        def control(self) -> Segmented:
            return self.choice

    def __init__(
        self,
        options: Sequence[str],
        *,
        label: str = "",
        note: str = "",
        index: int = 0,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._options = tuple(options)
        self._label = label
        self._note = note
        self._spans: list[range] = []
        self.set_reactive(Segmented.index, index)

    @property
    def value(self) -> str:
        return self._options[self.index]

    def set_options(self, options: Sequence[str], value: str | None = None, note: str | None = None) -> None:
        """Other options; ``value`` is chosen without a message."""
        self._options = tuple(options)
        if note is not None:
            self._note = note
        chosen = self._options.index(value) if value in self._options else 0
        self.set_reactive(Segmented.index, chosen)
        self._draw()

    def step(self, by: int) -> None:
        """The next or previous option; wraps round."""
        self.index = (self.index + by) % len(self._options)

    def on_mount(self) -> None:
        self._draw()

    def watch_index(self) -> None:
        self._draw()
        if self.is_mounted:
            self.post_message(self.Changed(self, self.value))

    def on_click(self, event: events.Click) -> None:
        for index, cells in enumerate(self._spans):
            if event.x - self.styles.padding.left in cells:
                self.index = index

    def _draw(self) -> None:
        line = text((f"{self._label} ", "$quiet")) if self._label else text()
        spans = []
        for index, option in enumerate(self._options):
            chosen = index == self.index
            start = line.cell_length
            line = line + text(
                (f" {option} ", "bold $background on $accent" if chosen else "$foreground on $panel")
            )
            spans.append(range(start, line.cell_length))
            line = line + " "
        self._spans = spans
        self.say(line + text((self._note, "$quiet")))


class Slider(Line):
    """A track with a knob over ``steps`` (label, value); `Changed` out with the step's index."""

    DEFAULT_CSS = "Slider { padding: 0 1; }"

    index: var[int] = var(0)

    @dataclass
    class Changed(Message):
        slider: Slider
        index: int

        @property
        def control(self) -> Slider:
            return self.slider

    def __init__(self, label: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._label = label
        self._steps: tuple[str, ...] = ("",)
        self._note = ""

    def set_steps(self, steps: Sequence[str], index: int, note: str = "") -> None:
        """Other steps; ``index`` is taken without a message."""
        self._steps = tuple(steps) or ("",)
        self._note = note
        self.set_reactive(Slider.index, max(0, min(index, len(self._steps) - 1)))
        self._draw()

    def step(self, by: int) -> None:
        """Move the knob; it stops at the ends."""
        self.index = max(0, min(len(self._steps) - 1, self.index + by))

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def watch_index(self) -> None:
        self._draw()
        if self.is_mounted:
            self.post_message(self.Changed(self, self.index))

    def on_click(self, event: events.Click) -> None:
        start, width = self._track()
        if width > 1:
            share = (event.x - self.styles.padding.left - start) / (width - 1)
            self.index = round(max(0.0, min(1.0, share)) * (len(self._steps) - 1))

    def _track(self) -> tuple[int, int]:
        start = len(self._label) + 1
        room = self.content_size.width - start - 8 - len(self._note)
        return start, max(4, min(32, room))

    def _draw(self) -> None:
        _, width = self._track()
        last = max(1, len(self._steps) - 1)
        knob = round(self.index / last * (width - 1))
        self.say(
            text(
                (f"{self._label} ", "$quiet"),
                ("━" * knob, "$accent"),
                ("●", "bold $accent"),
                ("─" * (width - 1 - knob), "$line"),
                (f" {self._steps[self.index]:<6}", "bold"),
                (self._note, "$quiet"),
            )
        )
