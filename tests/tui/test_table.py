from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.content import Content
from textual.widgets import OptionList

from localllm.tui.widgets.table import Column, Meter, Row, Table, aligned, layout

COLUMNS = (
    Column("name", "name", 6, 10, grow=True),
    Column("size", "size", 5, 8, right=True),
    Column("note", "note", 8, 2),
)


@given(st.integers(min_value=0, max_value=60))
def test_columns_never_need_more_than_there_is(width: int) -> None:
    fitted = layout(COLUMNS, width)
    total = sum(w for _, w in fitted) + 2 * (len(fitted) - 1)
    assert total == max(width, 6) or (len(fitted) == 1 and total == 6)


def test_the_least_important_column_goes_first() -> None:
    assert [c.key for c, _ in layout(COLUMNS, 20)] == ["name", "size"]
    assert [c.key for c, _ in layout(COLUMNS, 8)] == ["name"]


def test_cells_are_cut_padded_and_aligned() -> None:
    line = aligned({"name": "a long name", "size": "4 G"}, layout(COLUMNS, 15))
    assert line.plain == "a long …    4 G"


def test_wide_characters_keep_the_columns_straight() -> None:
    lines = [
        aligned({"name": name, "size": "1"}, layout(COLUMNS, 15))
        for name in ("模型模型模型模型", "plain", "👩‍👩‍👧x")
    ]
    assert {line.cell_length for line in lines} == {15}


def test_a_meter_is_as_wide_as_its_column() -> None:
    line = aligned({"name": Meter(0.5, "$accent")}, ((COLUMNS[0], 10),))
    assert line.plain == "━━━━━─────"


class TableApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return {"quiet": "#808080", "line": "#404040"}

    def compose(self) -> ComposeResult:
        yield Table(COLUMNS)

    def on_table_selected(self, event: Table.Selected) -> None:
        self.seen.append(event.key)


def rows(*keys: str) -> list[Row]:
    return [Row(key, {"name": key, "size": "1"}) for key in keys]


async def test_the_cursor_stays_on_its_row_when_others_come_and_go() -> None:
    app = TableApp()
    async with app.run_test() as pilot:
        table = app.query_one(Table)
        table.show(rows("a", "b", "c"))
        table.highlight("b")
        table.show(rows("new", "a", "b"))
        await pilot.pause()
        assert table.highlighted == "b"
        table.show(rows("new", "a"))
        assert table.highlighted == "a"
        table.focus_list()
        await pilot.press("enter")
        assert app.seen == ["a"]


async def test_only_changed_rows_are_redrawn() -> None:
    app = TableApp()
    async with app.run_test() as pilot:
        table = app.query_one(Table)
        table.show(rows("a", "b"))
        await pilot.pause()
        options = app.query_one(OptionList)
        kept, changed = options.get_option_at_index(0).prompt, options.get_option_at_index(1).prompt
        table.show([*rows("a"), Row("b", {"name": "b", "size": "2"})])
        assert options.get_option_at_index(0).prompt is kept
        assert options.get_option_at_index(1).prompt is not changed


async def test_no_rows_say_so() -> None:
    app = TableApp()
    async with app.run_test() as pilot:
        table = app.query_one(Table)
        table.show([])
        await pilot.pause()
        assert table.highlighted is None
        assert table.query_one(".table--empty").display


async def test_markup_in_a_cell_is_text() -> None:
    app = TableApp()
    async with app.run_test() as pilot:
        app.query_one(Table).show([Row("x", {"name": "[red]x[/]", "size": "[b]"})])
        await pilot.pause()
        prompt = app.query_one(OptionList).get_option_at_index(0).prompt
        assert isinstance(prompt, Content)
        assert "[red]x[/]" in prompt.plain
