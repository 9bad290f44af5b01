"""One row of text that redraws only when what it says has changed."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

Part = str | Content | tuple[str, str]


def text(*parts: Part) -> Content:
    """Parts joined into one Content; a pair is (text, style). Nothing in them is read as markup."""
    return Content.assemble(*parts)


def clipped(words: str, cells: int) -> str:
    """``words`` in at most ``cells`` cells, with an ellipsis when something is lost; newlines become spaces."""
    flat = " ".join(words.split()) if "\n" in words or "\t" in words else words
    if len(flat) < cells and flat.isascii():
        return flat
    return Content(flat).truncate(max(0, cells), ellipsis=True).plain


def entitle(widget: Widget, title: Content, subtitle: Content | None = None) -> None:
    """Put words into a widget's frame, which is drawn again only if they are other words or colours."""
    # Textual redraws the whole widget for every assignment, and gives a title back as the markup it would be
    if widget.border_title != title.markup:
        widget.border_title = title
    if subtitle is not None and widget.border_subtitle != subtitle.markup:
        widget.border_subtitle = subtitle


class Line(Static):
    """A Static for one row: `say` compares before it draws, so an idle app sends nothing."""

    DEFAULT_CSS = "Line { height: 1; width: 1fr; }"

    def __init__(
        self, content: Content | str = "", *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(content, id=id, classes=classes, markup=False)
        self._said: Content | None = None

    def say(self, content: Content) -> None:
        """Show ``content`` unless it is shown already, styles included."""
        if self._said is not None and self._said.is_same(content):
            return
        self._said = content
        self.update(content, layout=False)
