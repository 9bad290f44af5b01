"""The settings screen: every setting with its value, source and meaning; the doctor; the themes."""

from __future__ import annotations

import json
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from localllm.core.control import Check, ConfigChange, ConfigEntry, ConfigView
from localllm.tui.actions import Scope, bindings
from localllm.tui.screens.dialogs import Picker, Prompt
from localllm.tui.screens.frame import FrameScreen
from localllm.tui.session import Session
from localllm.tui.state import AppState, Link
from localllm.tui.widgets.choice import Segmented
from localllm.tui.widgets.line import entitle, text
from localllm.tui.widgets.search_bar import SearchBar
from localllm.tui.widgets.table import Column, Row, Table

PAGES = ("Settings", "Doctor", "Themes")

_COLUMNS = (
    Column("key", "setting", 26, 10, grow=True),
    Column("value", "value", 20, 9),
    Column("source", "from", 12, 8),
)
_STATE = {"ok": ("✓", "$success"), "warning": ("!", "$warning"), "failed": ("✗", "$error")}


class SettingsScreen(FrameScreen):
    scope = Scope.SETTINGS
    CSS_PATH = "settings.tcss"
    BINDINGS = bindings(Scope.SETTINGS)
    AUTO_FOCUS: ClassVar[str | None] = "#entries OptionList"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._view: ConfigView | None = None
        self._query = ""
        self._link = Link.CONNECTING

    def body(self) -> ComposeResult:
        with Vertical():
            yield Segmented(PAGES, id="pages")
            with Vertical(id="page-settings"):
                with Vertical(id="entries", classes="pane") as pane:
                    pane.border_title = Content("Settings")
                    yield SearchBar("filter by name or meaning")
                    yield Table(_COLUMNS, id="settings")
                with Vertical(id="meaning", classes="pane"):
                    yield Static(id="meaning-text", markup=False)
            with VerticalScroll(id="page-doctor", classes="pane") as pane:
                pane.border_title = Content("Doctor")
                yield Static("", id="checks", markup=False)
            with Vertical(id="page-themes", classes="pane") as pane:
                pane.border_title = Content("Themes")
                yield OptionList(id="themes", markup=False)

    def on_mount(self) -> None:
        super().on_mount()
        self._turn_to(0)

    # ------------------------------------------------------------ facts

    def facts(self, state: AppState) -> None:
        back = state.link is Link.UP and self._link is not Link.UP
        self._link = state.link
        if back:
            self.read_config()

    @work(exclusive=True, group="config", exit_on_error=False)
    async def read_config(self) -> None:
        self._take(await self.session.ask(lambda service: service.config()))

    def _take(self, view: ConfigView | None) -> None:
        if view is not None:
            self._view = view
            self._draw()

    def _draw(self) -> None:
        if self._view is None:
            return
        words = self._query.lower()
        shown = [e for e in self._view.entries if words in f"{e.key} {e.help}".lower()]
        pane = self.query_one("#entries")
        problems = self._view.problems
        title = text("Settings ", (f"{len(problems)} problems", "$error") if problems else ("", ""))
        entitle(pane, title, text((self._view.path, "$quiet")))
        table = self.query_one("#settings", Table)
        table.show([entry_row(e) for e in shown])
        self._explain(table.highlighted)

    def _entry(self, key: str | None) -> ConfigEntry | None:
        entries = self._view.entries if self._view else ()
        return next((e for e in entries if e.key == key), None)

    def _explain(self, key: str | None) -> None:
        entry = self._entry(key)
        entitle(self.query_one("#meaning"), text((key or "", "bold")))
        self.query_one("#meaning-text", Static).update(meaning(entry) if entry else text())

    def on_table_highlighted(self, event: Table.Highlighted) -> None:
        self._explain(event.key)

    # ------------------------------------------------------------ changing

    def on_table_selected(self, event: Table.Selected) -> None:
        self.action_change()

    @work(exclusive=True, group="change", exit_on_error=False)
    async def action_change(self) -> None:
        """Ask for the new value in the way that suits the setting; the service checks it."""
        entry = self._entry(self.query_one("#settings", Table).highlighted)
        if entry is None:
            return
        choices = entry.choices or (("true", "false") if entry.type == "boolean" else ())
        if choices:
            lines = [(choice, text(choice)) for choice in choices]
            typed = await self.app.push_screen_wait(
                Picker(entry.key, lines, current=shown_value(entry.value))
            )
        else:
            value = "" if entry.value is None or entry.secret else shown_value(entry.value)
            prompt = Prompt(
                entry.key, value=value, hint=f"{entry.help}. Blank: the default.", secret=entry.secret
            )
            typed = await self.app.push_screen_wait(prompt)
        if typed is not None:
            await self._change(entry, typed or None)

    @work(exclusive=True, group="change", exit_on_error=False)
    async def action_reset(self) -> None:
        entry = self._entry(self.query_one("#settings", Table).highlighted)
        if entry is not None:
            await self._change(entry, None)

    async def _change(self, entry: ConfigEntry, value: str | None) -> None:
        view = await self.session.ask(
            lambda service: service.set_config(ConfigChange(key=entry.key, value=value))
        )
        if view is None:
            return
        self._take(view)
        if entry.key == "ui.theme" and value in self.app.available_themes:
            self.app.theme = value
        if entry.needs_restart:
            self.notify(f"{entry.key} takes effect when the service starts again.", markup=False)

    # ------------------------------------------------------------ pages

    def on_segmented_changed(self, event: Segmented.Changed) -> None:
        self._turn_to(self.query_one("#pages", Segmented).index)

    def _turn_to(self, page: int) -> None:
        for index, name in enumerate(PAGES):
            self.query_one(f"#page-{name.lower()}").display = index == page
        if page == 0:
            self.query_one("#settings", Table).focus_list()
        elif page == 1:
            self.query_one("#page-doctor").focus()
            self.examine()
        else:
            self._list_themes()
            self.query_one("#themes").focus()

    def action_page(self, step: int) -> None:
        self.query_one("#pages", Segmented).step(step)

    def action_doctor(self) -> None:
        self.query_one("#pages", Segmented).index = 1

    def action_themes(self) -> None:
        self.query_one("#pages", Segmented).index = 2

    @work(exclusive=True, group="doctor", exit_on_error=False)
    async def examine(self) -> None:
        """Let the service look at the machine and itself; what is wrong comes first."""
        area = self.query_one("#checks", Static)
        area.update(text(("Looking…", "$quiet")))
        report = await self.session.ask(lambda service: service.doctor())
        if report is None:
            area.update(text(("The doctor did not answer.", "$error")))
            return
        widest = max((len(check.name) for check in report.checks), default=0)
        ranked = sorted(report.checks, key=lambda c: ("failed", "warning", "ok").index(c.state))
        area.update(Content("\n").join([check_lines(check, widest) for check in ranked]))

    def _list_themes(self) -> None:
        themes = self.query_one("#themes", OptionList)
        if themes.option_count == 0:
            names = sorted(self.app.available_themes, key=lambda n: (not n.startswith("localllm"), n))
            themes.add_options([Option(text(name), id=name) for name in names])
            themes.highlighted = names.index(self.app.theme)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if event.option_list.id == "themes" and event.option_list.has_focus and event.option_id:
            self.app.theme = event.option_id

    @work(exclusive=True, group="change", exit_on_error=False)
    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter keeps the theme: it is written to the settings."""
        if event.option_list.id != "themes" or not event.option_id:
            return
        change = ConfigChange(key="ui.theme", value=event.option_id)
        self._take(await self.session.ask(lambda service: service.set_config(change)))
        self.notify(f"{event.option_id} is the theme from now on.", timeout=3)

    def action_leave(self) -> None:
        for bar in self.query(SearchBar):
            bar.close()
        self._turn_to(self.query_one("#pages", Segmented).index)

    def on_search_bar_sought(self, event: SearchBar.Sought) -> None:
        self._query = event.words
        self._draw()

    def on_search_bar_left(self) -> None:
        self.query_one("#settings", Table).focus_list()


def shown_value(value: object) -> str:
    """A value as it is written in the file; unset and empty in words."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(str(v) for v in value) or "empty"
    return value if isinstance(value, str) else json.dumps(value)


def entry_row(entry: ConfigEntry) -> Row:
    """A setting that somebody set stands out from one that is as it came."""
    own = entry.source != "default"
    return Row(
        entry.key,
        {
            "key": text((entry.key, "bold" if own else "")),
            "value": text((shown_value(entry.value), "$accent" if own else "$foreground")),
            "source": text((entry.source, "$accent" if own else "$quiet")),
        },
    )


def meaning(entry: ConfigEntry) -> Content:
    """What a setting does, what it may be, and where its value comes from."""
    kind = " | ".join(entry.choices) if entry.choices else entry.type
    lines = [
        text(f"{entry.help}."),
        text(("default ", "$quiet"), shown_value(entry.default), ("   type ", "$quiet"), kind),
        text(("from ", "$quiet"), entry.source, (f"  {entry.where}" if entry.where else "", "$quiet")),
    ]
    if entry.needs_restart:
        lines[1] = lines[1] + text(("   needs a restart", "$warning"))
    return Content("\n").join(lines)


def check_lines(check: Check, widest: int) -> Content:
    """One check and, indented under it, what to do; ``widest`` is the longest name in the report."""
    line = text(_STATE[check.state], f" {check.name.ljust(widest)}  ", check.message)
    return line + text((f"\n{' ' * (widest + 4)}{check.hint}", "$quiet")) if check.hint else line
