"""A framed plot of one series, its newest value in the frame's title."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from localllm.tui import plots
from localllm.tui.widgets.line import entitle, text


class Plot(Static):
    """`show` values in, nothing out. The upper edge of the scale stands in the subtitle."""

    DEFAULT_CSS = """
    Plot { border: round $line; border-title-color: $foreground; border-subtitle-color: $quiet; height: 1fr; width: 1fr; }
    """

    def __init__(self, title: str, colour: str = "$accent", *, id: str | None = None) -> None:
        super().__init__(markup=False, id=id)
        self._title = title
        self._colour = colour
        self._values: tuple[float | None, ...] = ()
        self._top: float | None = None
        self._ascii = False
        self._drawn: list[str] | None = None
        self.border_title = Content(title)

    def show(
        self,
        values: Sequence[float | None],
        *,
        newest: str,
        scale: str,
        top: float | None = None,
        ascii_only: bool = False,
    ) -> None:
        """``newest`` and ``scale`` are worded figures for the frame; ``top`` fixes the scale's upper edge."""
        self._values, self._top, self._ascii = tuple(values), top, ascii_only
        title = text((self._title, "$quiet"), (f" {newest}", "bold $foreground"))
        entitle(self, title, text((scale, "$quiet")))
        self._draw()

    def on_resize(self) -> None:
        self._drawn = None
        self._draw()

    def _draw(self) -> None:
        width, height = self.content_size
        lines = plots.plot(self._values, width, height, top=self._top, ascii_only=self._ascii)
        if lines != self._drawn:
            self._drawn = lines
            self.update(text(("\n".join(lines), self._colour)), layout=False)
