"""The server screen: where the port is and how to call it, and the log of what was called."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from localllm.core.control import ConfigView, RequestRecord
from localllm.tui import figures
from localllm.tui.actions import Scope, bindings
from localllm.tui.screens.dialogs import Details
from localllm.tui.screens.frame import FrameScreen
from localllm.tui.session import Session
from localllm.tui.snippets import Snippet, snippets
from localllm.tui.state import AppState, Link
from localllm.tui.widgets.choice import Segmented
from localllm.tui.widgets.line import Line, entitle, text
from localllm.tui.widgets.search_bar import SearchBar
from localllm.tui.widgets.table import Column, Row, Table

LOG_LENGTH = 300

_COLUMNS = (
    Column("time", "time", 8, 9),
    Column("status", "", 3, 10),
    Column("model", "model", 12, 7, grow=True),
    Column("endpoint", "endpoint", 16, 3),
    Column("client", "client", 8, 4),
    Column("prompt", "prompt", 6, 5, right=True),
    Column("cached", "cached", 6, 4, right=True),
    Column("out", "out", 5, 8, right=True),
    Column("ttft", "TTFT", 7, 8, right=True),
    Column("speed", "tok/s", 5, 8, right=True),
    Column("total", "total", 7, 5, right=True),
)


@dataclass(frozen=True, slots=True)
class Access:
    """What a client needs: the base URL, and whether a key."""

    base_url: str
    needs_key: bool
    where: str


class ServerScreen(FrameScreen):
    scope = Scope.SERVER
    CSS_PATH = "server.tcss"
    BINDINGS = bindings(Scope.SERVER)
    AUTO_FOCUS: ClassVar[str | None] = "#log OptionList"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._config: ConfigView | None = None
        self._records: tuple[RequestRecord, ...] = ()
        self._snippets: tuple[Snippet, ...] = ()
        self._revision: int | None = None
        self._query = ""
        self._errors_only = False
        self._link = Link.CONNECTING

    def body(self) -> ComposeResult:
        with Vertical():
            with Vertical(id="access", classes="pane") as pane:
                pane.border_title = Content("OpenAI-compatible server")
                yield Line(id="address")
                yield Segmented(("curl",), id="snippet-names")
                with VerticalScroll(id="snippet-box", can_focus=False):
                    yield Static(id="snippet", markup=False)
            with Vertical(id="log", classes="pane") as pane:
                pane.border_title = Content("Requests")
                yield SearchBar("filter by model, client, endpoint, status or error")
                yield Table(_COLUMNS, id="records", empty="No request yet.")

    # ------------------------------------------------------------ facts

    def facts(self, state: AppState) -> None:
        if state.service is None:
            return
        back = state.link is Link.UP and self._link is not Link.UP
        self._link = state.link
        if back or self._config is None:
            self.read_config()
        if back or state.service.records_revision != self._revision:
            self._revision = state.service.records_revision
            self.read_records()
        self._draw_access()

    @work(exclusive=True, group="config", exit_on_error=False)
    async def read_config(self) -> None:
        self._config = await self.session.ask(lambda service: service.config()) or self._config
        self._draw_access()

    @work(exclusive=True, group="records", exit_on_error=False)
    async def read_records(self) -> None:
        found = await self.session.ask(lambda service: service.requests(limit=LOG_LENGTH))
        if found is not None:
            self._records = found.records
            self._draw_log()

    def _access(self) -> Access:
        entries = self._config.entries if self._config else ()
        keys = next((e.value for e in entries if e.key == "server.api_keys"), None)
        where = self._config.path if self._config else ""
        return Access(f"http://{self.state.address}/v1", bool(keys), where)

    def _draw_access(self) -> None:
        access = self._access()
        key = (
            text(("key ", "$quiet"), ("server.api_keys", "bold"), (" in the settings", "$quiet"))
            if access.needs_key
            else text(("no key needed on this machine", "$quiet"))
        )
        self.query_one("#address", Line).say(text(" ", (access.base_url, "bold $accent"), "   ") + key)
        model = self.state.instance.model if self.state.instance else None
        models = self.state.service.models if self.state.service else ()
        named = model or (models[0].name if models else "MODEL")
        made = snippets(access.base_url, named, needs_key=access.needs_key)
        if made != self._snippets:
            names = self.query_one("#snippet-names", Segmented)
            chosen = names.value
            self._snippets = made
            names.set_options([s.title for s in made], chosen)
            self._draw_snippet()

    def _draw_snippet(self) -> None:
        snippet = self._snippet()
        if snippet is not None:
            self.query_one("#snippet", Static).update(text((snippet.text, "$foreground")))

    def _snippet(self) -> Snippet | None:
        chosen = self.query_one("#snippet-names", Segmented).value
        return next((s for s in self._snippets if s.title == chosen), None)

    def _draw_log(self) -> None:
        words = self._query.lower()
        shown = [
            r
            for r in self._records
            if (not self._errors_only or r.status >= 400) and (not words or words in _haystack(r))
        ]
        failed = sum(1 for r in self._records if r.status >= 400)
        title = text("Requests ", (f"{len(shown)} of {len(self._records)}", "$quiet"))
        if failed:
            title = title + text((f"  {failed} failed", "$error"))
        cached = cached_share(self._records)
        if cached is not None:
            title = title + text((f"  {cached * 100:.0f} % of prompt tokens cached", "$quiet"))
        if self._errors_only:
            title = title + text(("  errors only", "$warning"))
        entitle(self.query_one("#log"), title)
        self.query_one("#records", Table).show([record_row(r) for r in shown])

    # ------------------------------------------------------------ actions

    def on_segmented_changed(self, event: Segmented.Changed) -> None:
        self._draw_snippet()

    def action_snippet(self, step: int) -> None:
        self.query_one("#snippet-names", Segmented).step(step)

    def action_copy_address(self) -> None:
        self.app.copy_to_clipboard(self._access().base_url)
        self.notify("Copied the base URL.", timeout=2)

    def action_copy_snippet(self) -> None:
        snippet = self._snippet()
        if snippet is not None:
            self.app.copy_to_clipboard(snippet.text)
            self.notify(f"Copied the {snippet.title} snippet.", timeout=2)

    def action_copy_key(self) -> None:
        """Keys are not sent to the app: say where they are, or that none is needed."""
        access = self._access()
        if access.needs_key:
            self.notify(f"The keys stand in {access.where} under server.api_keys.", markup=False, timeout=6)
        else:
            self.notify("No key is needed on this machine; clients may send any.", timeout=4)

    def action_only_errors(self) -> None:
        self._errors_only = not self._errors_only
        self._draw_log()

    @work(exclusive=True, group="dialog", exit_on_error=False)
    async def action_details(self) -> None:
        key = self.query_one("#records", Table).highlighted
        record = next((r for r in self._records if r.id == key), None)
        if record is not None:
            await self.app.push_screen_wait(Details(f"Request {record.id}", record_details(record)))

    def on_table_selected(self, event: Table.Selected) -> None:
        self.action_details()

    def action_leave(self) -> None:
        for bar in self.query(SearchBar):
            bar.close()
        self.query_one("#records", Table).focus_list()

    def on_search_bar_sought(self, event: SearchBar.Sought) -> None:
        self._query = event.words
        self._draw_log()

    def on_search_bar_left(self) -> None:
        self.query_one("#records", Table).focus_list()


def cached_share(records: Sequence[RequestRecord]) -> float | None:
    """How much of all prompts came from the prefix cache, None before any was counted."""
    counted = [r for r in records if r.prompt_tokens and r.cached_tokens is not None]
    total = sum(r.prompt_tokens or 0 for r in counted)
    return sum(r.cached_tokens or 0 for r in counted) / total if total else None


def _haystack(record: RequestRecord) -> str:
    fields = (record.model, record.client, record.endpoint, record.error_code, record.id, str(record.status))
    return " ".join(f for f in fields if f).lower()


def record_row(record: RequestRecord) -> Row:
    """One line of the log; a failed request shows its code where the others show their figures."""
    good = record.status < 400
    at = time.strftime("%H:%M:%S", time.localtime(record.created_at))
    model: Content | str = record.model
    if record.error_code:
        model = text(record.model, (f"  {record.error_code}", "$error"))
    return Row(
        record.id,
        {
            "time": text((at, "$quiet")),
            "status": text((str(record.status), "$success" if good else "$error")),
            "model": model,
            "endpoint": text((record.endpoint.removeprefix("/v1/"), "$quiet")),
            "client": text((record.client or "", "$quiet")),
            "prompt": figures.tokens(record.prompt_tokens),
            "cached": text((figures.tokens(record.cached_tokens), "$quiet")),
            "out": figures.tokens(record.completion_tokens),
            "ttft": figures.milliseconds(record.ttft_ms),
            "speed": figures.speed(record.tokens_per_second),
            "total": text((figures.milliseconds(record.total_ms), "$quiet")),
        },
    )


def record_details(record: RequestRecord) -> list[tuple[str, str]]:
    """Every field of a record in the order of the struct; times in words."""
    rows = []
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if value is None:
            continue
        shown = str(value)
        if name == "created_at":
            shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
        elif name.endswith("_ms"):
            shown = figures.milliseconds(value)
        rows.append((name.removesuffix("_ms").replace("_", " "), shown))
    return rows
