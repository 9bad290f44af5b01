"""Getting a model: search the catalogue and Hugging Face, look at what a pull would fetch, and choose the quant."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from localllm.core.control import PullPreview, PullRequest, SearchHit, SearchResults
from localllm.core.units import format_bytes, format_count
from localllm.tui import figures
from localllm.tui.session import Session
from localllm.tui.widgets.line import Line, text
from localllm.tui.widgets.model_facts import FIT_COLUMNS, fit_row, row_words
from localllm.tui.widgets.table import Column, Row, Table

# Asking the sources costs a round trip: not for every letter.
SETTLE_SECONDS = 0.35

_COLUMNS = (
    Column("title", "model", 20, 10, grow=True),
    Column("size", "size", 6, 8, right=True),
    Column("purposes", "for", 12, 5),
    Column("source", "from", 12, 4),
    Column("downloads", "pulls", 6, 6, right=True),
)


class FindModel(ModalScreen[str | None]):
    """Dismisses with a reference to pull, or None. What is typed is searched; a reference may be typed as well."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar = [Binding("escape", "dismiss(None)", "cancel")]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._hits: tuple[SearchHit, ...] = ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -tall") as dialog:
            dialog.border_title = Content("Get a model")
            dialog.border_subtitle = text(("⏎", "$accent"), " look at it  ", ("esc", "$accent"), " cancel")
            field = Input(placeholder="a name, or a reference like hf.co/OWNER/REPOSITORY", compact=True)
            field.cursor_blink = False
            yield field
            yield Table(_COLUMNS, empty="Nothing found.")
            yield Static(id="note", markup=False)

    def on_mount(self) -> None:
        self.search("")

    def on_input_changed(self, event: Input.Changed) -> None:
        self.search(event.value.strip())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if self._hits:
            self.query_one(Table).focus_list()
        elif event.value.strip():
            self.dismiss(event.value.strip())

    @work(exclusive=True, group="search", exit_on_error=False)
    async def search(self, query: str) -> None:
        """Ask all sources; one that cannot be asked is named, and the others' answers stand."""
        note = self.query_one("#note", Static)
        await asyncio.sleep(SETTLE_SECONDS if query else 0)
        note.update(text(("Searching…", "$quiet")))
        found = await self._session.ask(lambda service: service.search(query))
        if found is None:
            note.update(text())
            return
        self._show(found)

    def _show(self, found: SearchResults) -> None:
        self._hits = found.hits
        table = self.query_one(Table)
        table.show([hit_row(hit) for hit in found.hits])
        if found.problems:
            self.query_one("#note", Static).update(text(("  ".join(found.problems), "$warning")))
        else:
            self._describe(table.highlighted)

    def on_table_highlighted(self, event: Table.Highlighted) -> None:
        self._describe(event.key)

    def _describe(self, reference: str | None) -> None:
        """Say of the hit under the cursor why it is where it is, and under which licence it comes."""
        hit = next((h for h in self._hits if h.reference == reference), None)
        if hit is None:
            self.query_one("#note", Static).update(text())
        else:
            words = "  ".join(
                filter(None, (hit.why, hit.licence, "needs an accepted licence" if hit.gated else None))
            )
            self.query_one("#note", Static).update(text((words or hit.reference, "$quiet")))

    def on_table_selected(self, event: Table.Selected) -> None:
        self.dismiss(event.key)


class PullChoice(ModalScreen[PullRequest | None]):
    """What a pull would fetch, one row per quant; dismisses with the one to pull, or None."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar = [Binding("escape,q", "dismiss(None)", "cancel")]

    def __init__(self, preview: PullPreview) -> None:
        super().__init__()
        self._preview = preview
        self._rows = preview.fit.rows if preview.fit else ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog -tall") as dialog:
            dialog.border_title = Content(self._preview.name)
            dialog.border_subtitle = text(("⏎", "$accent"), " pull  ", ("esc", "$accent"), " cancel")
            yield Static(preview_lines(self._preview), markup=False)
            yield Table(FIT_COLUMNS, empty="One file, no choice of quantisations.")
            yield Line(id="words")

    def on_mount(self) -> None:
        table = self.query_one(Table)
        rows: Sequence[Row] = [fit_row(row) for row in self._rows]
        table.show(rows or [Row("", {"quant": self._preview.quant or "", "need": ""})])
        table.highlight(self._preview.quant or "")
        table.focus_list()

    def on_table_highlighted(self, event: Table.Highlighted) -> None:
        row = next((r for r in self._rows if r.quant == event.key), None)
        if row is not None:
            self.query_one("#words", Line).say(row_words(row))

    def on_table_selected(self, event: Table.Selected) -> None:
        self.dismiss(PullRequest(reference=self._preview.reference, quant=event.key or self._preview.quant))


def hit_row(hit: SearchHit) -> Row:
    """One search hit; a gated one is marked."""
    title = text(hit.title, ("  gated" if hit.gated else "", "$warning"))
    return Row(
        hit.reference,
        {
            "title": title,
            "size": format_count(hit.parameters) if hit.parameters else figures.UNKNOWN,
            "purposes": text((" ".join(hit.purposes), "$quiet")),
            "source": text((hit.source, "$quiet")),
            "downloads": text((figures.tokens(hit.downloads), "$quiet")),
        },
    )


def preview_lines(preview: PullPreview) -> Content:
    """Where it comes from, how much is to be fetched, and what stands against it."""
    facts = [preview.origin, preview.architecture, preview.licence, *preview.capabilities]
    fetch = f"{format_bytes(preview.missing_bytes)} to fetch for {preview.quant or 'it'}"
    short = preview.missing_bytes + preview.reserve_bytes > preview.free_bytes
    lines = [
        text((" · ".join(f for f in facts if f), "$quiet")),
        text(
            (fetch, "bold"), (f"  {format_bytes(preview.free_bytes)} free", "$error" if short else "$quiet")
        ),
        text((preview.quant_reason, "$quiet")),
    ]
    if preview.here:
        lines.append(text(("It is here already.", "$warning")))
    if preview.foreign is not None:
        lines.append(text((preview.foreign, "$error")))
    return Content("\n").join(lines)
