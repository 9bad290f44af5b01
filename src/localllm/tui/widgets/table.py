"""A table that fits its columns to the room it has and redraws only rows that changed.

An OptionList with aligned lines under a heading: it scrolls, clicks and keeps its cursor as lists everywhere else in
the app do. Columns that find no room are left out, the least important first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from localllm.tui import plots
from localllm.tui.widgets.line import Line

GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """``width`` in cells; ``weight``: the greater, the longer it stays; ``grow``: takes the room that is left."""

    key: str
    title: str
    width: int
    weight: int = 5
    right: bool = False
    grow: bool = False


@dataclass(frozen=True, slots=True)
class Meter:
    """A cell that is a bar as wide as its column: ``share`` 0…1 of it in ``colour``."""

    share: float
    colour: str

    def drawn(self, width: int) -> Content:
        full, empty = plots.bar(self.share, width)
        return Content.assemble((full, self.colour), (empty, "$line"))


Cell = Content | str | Meter


@dataclass(frozen=True, slots=True)
class Row:
    """``cells`` by column key; a missing one is blank."""

    key: str
    cells: Mapping[str, Cell]


def layout(columns: Sequence[Column], width: int) -> tuple[tuple[Column, int], ...]:
    """The columns that fit ``width`` cells, each with its width; at least the weightiest one."""
    kept = list(columns)

    def needed() -> int:
        return sum(c.width for c in kept) + GAP * max(0, len(kept) - 1)

    while len(kept) > 1 and needed() > width:
        kept.remove(min(reversed(kept), key=lambda c: c.weight))
    spare = max(0, width - needed())
    growing = [c for c in kept if c.grow]
    return tuple((c, c.width + (spare // len(growing) if c in growing else 0)) for c in kept)


def aligned(cells: Mapping[str, Cell], columns: Sequence[tuple[Column, int]]) -> Content:
    """One line of the table."""
    parts = []
    for column, width in columns:
        cell = cells.get(column.key, "")
        if isinstance(cell, Meter):
            cell = cell.drawn(width)
        content = cell if isinstance(cell, Content) else Content(cell)
        content = content.truncate(width, ellipsis=True)
        blank = " " * (width - content.cell_length)
        parts.append(Content.assemble(blank, content) if column.right else Content.assemble(content, blank))
    return Content(" " * GAP).join(parts)


class Table(Vertical):
    """`show` rows in; `Highlighted` and `Selected` out, with the row's key."""

    DEFAULT_CSS = """
    Table { height: 1fr; }
    Table > .table--heading { color: $quiet; padding: 0 1; }
    Table > OptionList { height: 1fr; }
    Table > .table--empty { color: $quiet; padding: 0 1; height: auto; display: none; }
    Table.-empty > .table--empty { display: block; }
    Table.-empty > OptionList { display: none; }
    """

    @dataclass
    class Highlighted(Message):
        table: Table
        key: str

        @property
        def control(self) -> Table:
            return self.table

    @dataclass
    class Selected(Message):
        table: Table
        key: str

        @property
        def control(self) -> Table:
            return self.table

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        empty: str = "Nothing here.",
        id: str | None = None,
        heading: bool = True,
    ) -> None:
        super().__init__(id=id)
        self._columns = tuple(columns)
        self._rows: tuple[Row, ...] = ()
        self._lines: tuple[Content, ...] = ()
        self._empty = empty
        self._heading = heading
        self._width = 0

    def compose(self) -> ComposeResult:
        heading = Line(classes="table--heading")
        heading.display = self._heading
        yield heading
        yield OptionList(markup=False)
        yield Line(self._empty, classes="table--empty")

    @property
    def rows(self) -> tuple[Row, ...]:
        return self._rows

    @property
    def highlighted(self) -> str | None:
        """The key of the row under the cursor."""
        index = self._list.highlighted
        return self._rows[index].key if index is not None and index < len(self._rows) else None

    def highlight(self, key: str) -> None:
        """Put the cursor on a row, if it is there."""
        for index, row in enumerate(self._rows):
            if row.key == key:
                self._list.highlighted = index

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows; the cursor stays on its key, or where it was."""
        before, at = self._rows, self._list.highlighted
        key = self.highlighted
        self._rows = tuple(rows)
        self.set_class(not rows, "-empty")
        if [r.key for r in before] != [r.key for r in self._rows] or not self._lines:
            self._rebuild()
            index = next((i for i, r in enumerate(self._rows) if r.key == key), at)
            if self._rows:
                self._list.highlighted = min(index or 0, len(self._rows) - 1)
            return
        self._redraw()

    def focus_list(self) -> None:
        """Give the list inside the focus."""
        self._list.focus()

    def on_resize(self) -> None:
        if self._room() != self._width:
            at = self._list.highlighted
            self._rebuild()
            self._list.highlighted = at

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if event.option_index < len(self._rows):
            self.post_message(self.Highlighted(self, self._rows[event.option_index].key))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_index < len(self._rows):
            self.post_message(self.Selected(self, self._rows[event.option_index].key))

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    def _room(self) -> int:
        # one cell of padding on each side and the scrollbar's own cell
        return max(0, self.size.width - 3)

    def _rebuild(self) -> None:
        self._width = self._room()
        columns = layout(self._columns, self._width)
        titles = {c.key: c.title for c, _ in columns}
        self.query_one(".table--heading", Line).say(aligned(titles, columns))
        self._lines = tuple(aligned(row.cells, columns) for row in self._rows)
        self._list.clear_options()
        self._list.add_options([Option(line) for line in self._lines])

    def _redraw(self) -> None:
        columns = layout(self._columns, self._width)
        lines = tuple(aligned(row.cells, columns) for row in self._rows)
        for index, (old, new) in enumerate(zip(self._lines, lines, strict=True)):
            if not old.is_same(new):
                self._list.replace_option_prompt_at_index(index, new)
        self._lines = lines
