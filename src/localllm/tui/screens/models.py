"""The models screen: what is here on the left, how the chosen model fits this machine on the right.

Context and KV type are sliders; each move asks the planner anew, and Enter loads what they say.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Literal

from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from localllm.core.control import (
    FitTable,
    ImportRequest,
    LoadRequest,
    ModelDetail,
    ModelSummary,
    PullRequest,
    Task,
    TaskPhase,
    UnloadRequest,
)
from localllm.core.units import format_bytes, format_count
from localllm.tui import figures
from localllm.tui.actions import Scope, bindings
from localllm.tui.screens.dialogs import Confirm, Details, Prompt
from localllm.tui.screens.frame import FrameScreen
from localllm.tui.session import Session
from localllm.tui.state import AppState, Link
from localllm.tui.widgets.choice import Segmented, Slider
from localllm.tui.widgets.line import Line, entitle, text
from localllm.tui.widgets.model_facts import (
    FIT_COLUMNS,
    MODEL_COLUMNS,
    budget_line,
    fit_row,
    headline,
    model_row,
    row_words,
    stack_legend,
    stack_line,
    task_line,
)
from localllm.tui.widgets.search_bar import SearchBar
from localllm.tui.widgets.table import Table

KV_TYPES = ("f16", "q8_0", "q5_1", "q4_0")
# A dragged slider moves faster than anyone reads: the planner is asked once it has come to rest.
SETTLE_SECONDS = 0.08


class ModelsScreen(FrameScreen):
    scope = Scope.MODELS
    CSS_PATH = "models.tcss"
    BINDINGS = bindings(Scope.MODELS)
    AUTO_FOCUS: ClassVar[str | None] = "#models OptionList"

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._chosen: str | None = None
        self._contexts: tuple[int, ...] = ()
        self._moved = False
        self._query = ""
        self._table: FitTable | None = None
        self._link = Link.CONNECTING

    def body(self) -> ComposeResult:
        with Horizontal():
            with Vertical(id="models", classes="pane") as pane:
                pane.border_title = Content("Models")
                yield SearchBar("filter by name")
                yield Table(MODEL_COLUMNS, id="here", empty="No model yet: g gets one.")
                yield Static(id="tasks", markup=False)
            with Vertical(id="fit", classes="pane") as pane:
                pane.border_title = Content("Fit")
                yield Line(id="headline")
                yield Line(id="budget")
                yield Slider("context", id="context")
                yield Segmented(KV_TYPES, label="KV type", id="kv")
                yield Line(id="stack")
                yield Line(id="legend")
                yield Table(FIT_COLUMNS, id="rows", empty="Choose a model.")
                yield Static(id="advice", markup=False)

    # ------------------------------------------------------------ facts

    def facts(self, state: AppState) -> None:
        back = state.link is Link.UP and self._link is not Link.UP
        self._link = state.link
        self._list()
        self._tasks()
        if back and self._chosen is not None:
            self.compute_fit(None, None)

    def _list(self) -> None:
        service = self.state.service
        models = service.models if service else ()
        instances = {i.model: i for i in service.instances} if service else {}
        words = self._query.lower()
        shown = [m for m in models if words in m.name.lower()]
        entitle(self.query_one("#models"), text("Models ", (str(len(models)), "$quiet")))
        self.query_one("#here", Table).show([model_row(m, instances) for m in shown])

    def _tasks(self) -> None:
        tasks = self.state.service.tasks if self.state.service else ()
        shown = [t for t in tasks if t.phase not in (TaskPhase.DONE, TaskPhase.CANCELLED)]
        area = self.query_one("#tasks", Static)
        area.display = bool(shown)
        if shown:
            lines = [task_line(t, area.size.width or 26) for t in shown[:4]]
            area.update(Content("\n").join(lines))

    def _model(self) -> ModelSummary | None:
        models = self.state.service.models if self.state.service else ()
        return next((m for m in models if m.name == self._chosen), None)

    # ------------------------------------------------------------ the fit table

    def on_table_highlighted(self, event: Table.Highlighted) -> None:
        if event.table.id == "rows":
            self._explain()
        elif event.key != self._chosen:
            self._chosen = event.key
            self._contexts, self._moved = (), False
            model = self._model()
            if model is not None:
                entitle(self.query_one("#fit"), text((model.name, "bold")))
                self.query_one("#headline", Line).say(headline(model))
            self.compute_fit(None, None)

    def on_slider_changed(self, event: Slider.Changed) -> None:
        self._recompute()

    def on_segmented_changed(self, event: Segmented.Changed) -> None:
        self._recompute()

    def _recompute(self) -> None:
        if self._contexts:
            self._moved = True
            self.compute_fit(self._contexts[self.query_one(Slider).index], self.query_one(Segmented).value)

    @work(exclusive=True, group="fit", exit_on_error=False)
    async def compute_fit(self, context_length: int | None, kv_type: str | None) -> None:
        """Ask for the table at this context and KV type; None leaves them to the planner."""
        await asyncio.sleep(SETTLE_SECONDS)
        chosen = self._chosen
        if chosen is None:
            return
        table = await self.session.ask(
            lambda service: service.fit(chosen, context_length=context_length, kv_type=kv_type)
        )
        if table is not None:
            self._show_fit(table)

    def _show_fit(self, table: FitTable) -> None:
        self._contexts = context_steps(table.context_length, table.trained_context_length)
        labels = [figures.context(c) for c in self._contexts]
        parallel = f"×{table.parallel}" if table.parallel > 1 else ""
        self.query_one(Slider).set_steps(labels, self._contexts.index(table.context_length), parallel)
        kinds = KV_TYPES if table.kv_type_k in KV_TYPES else (*KV_TYPES, table.kv_type_k)
        self.query_one(Segmented).set_options(kinds, table.kv_type_k)
        self.query_one("#budget", Line).say(budget_line(table))
        rows = self.query_one("#rows", Table)
        fresh = self._table is None or self._table.model != table.model
        rows.show([fit_row(row) for row in table.rows])
        if fresh:
            # the file that is here is what the bar should speak of first
            rows.highlight(next((r.quant for r in table.rows if r.here), ""))
        self._table = table
        self._explain()

    def _explain(self) -> None:
        """The bar of the quant under the cursor, and in words what there is to say of it and of the table."""
        table = self._table
        if table is None or not table.rows:
            return
        key = self.query_one("#rows", Table).highlighted
        row = next((r for r in table.rows if r.quant == key), table.rows[0])
        self.query_one("#stack", Line).say(stack_line(row, self.query_one("#stack", Line).content_size.width))
        self.query_one("#legend", Line).say(stack_legend(row))
        lines = [row_words(row)]
        if table.recommendation:
            lines.append(text(("★ ", "$accent"), (table.recommendation, "$quiet")))
        lines += [text(("! ", "$warning"), (warning, "$quiet")) for warning in table.warnings]
        self.query_one("#advice", Static).update(Content("\n").join(lines))

    # ------------------------------------------------------------ actions

    def on_table_selected(self, event: Table.Selected) -> None:
        self.action_load()

    def action_context(self, step: int) -> None:
        self.query_one(Slider).step(step)

    def action_kv_type(self) -> None:
        self.query_one(Segmented).step(1)

    @work(exclusive=True, group="load", exit_on_error=False)
    async def action_load(self) -> None:
        if self._chosen is None:
            return
        # untouched sliders leave the choice to the planner, which knows the free memory of the very moment
        request = LoadRequest(model=self._chosen)
        if self._moved:
            request = LoadRequest(
                model=self._chosen,
                context_length=self._contexts[self.query_one(Slider).index],
                kv_type=self.query_one(Segmented).value,
            )
        loaded = await self.session.ask(lambda service: service.load(request))
        if loaded is not None:
            self.notify(f"{loaded.model} is {loaded.phase.value}.", markup=False, timeout=3)

    @work(exclusive=True, group="unload", exit_on_error=False)
    async def action_unload(self) -> None:
        if self._chosen is not None:
            request = UnloadRequest(model=self._chosen)
            await self.session.ask(lambda service: service.unload(request))

    @work(exclusive=True, group="dialog", exit_on_error=False)
    async def action_details(self) -> None:
        chosen = self._chosen
        if chosen is None:
            return
        detail = await self.session.ask(lambda service: service.model(chosen))
        if detail is not None:
            await self.app.push_screen_wait(Details(detail.summary.name, detail_rows(detail)))

    @work(exclusive=True, group="dialog", exit_on_error=False)
    async def action_get_model(self) -> None:
        """Search, look, choose a quant, pull: each step can be left, and nothing is fetched before the last."""
        from localllm.tui.screens.find_model import FindModel, PullChoice

        reference = await self.app.push_screen_wait(FindModel(self.session))
        if not reference:
            return
        self.notify(f"Looking at {reference}…", markup=False, timeout=3)
        preview = await self.session.ask(lambda service: service.preview(PullRequest(reference=reference)))
        request = await self.app.push_screen_wait(PullChoice(preview)) if preview is not None else None
        if request is not None:
            await self.session.ask(lambda service: service.pull(request))

    def _download(self) -> Task | None:
        """The download that keys speak of: one that runs, else one that waits or pauses."""
        tasks = self.state.service.tasks if self.state.service else ()
        alive = (TaskPhase.RUNNING, TaskPhase.WAITING, TaskPhase.PAUSED)
        pulls = [t for t in tasks if t.kind == "pull" and t.phase in alive]
        return min(pulls, key=lambda t: alive.index(t.phase), default=None)

    @work(exclusive=True, group="steer", exit_on_error=False)
    async def action_pause_download(self) -> None:
        task = self._download()
        if task is not None:
            action: Literal["pause", "resume"] = "resume" if task.phase is TaskPhase.PAUSED else "pause"
            await self.session.ask(lambda service: service.steer_download(task.id, action))

    @work(exclusive=True, group="dialog", exit_on_error=False)
    async def action_cancel_download(self) -> None:
        task = self._download()
        if task is None:
            return
        consequence = f"{format_bytes(task.done)} that are here already go too."
        if await self.app.push_screen_wait(Confirm(f"Give up {task.title}?", consequence, "give it up")):
            await self.session.ask(lambda service: service.steer_download(task.id, "cancel"))

    @work(exclusive=True, group="dialog", exit_on_error=False)
    async def action_import_model(self) -> None:
        hint = "A GGUF file on the machine of the service. It is copied into the store; the original stays."
        path = await self.app.push_screen_wait(Prompt("Import a model", hint=hint))
        if path:
            task = await self.session.ask(lambda service: service.import_model(ImportRequest(path=path)))
            if task is not None and task.phase is TaskPhase.FAILED:
                self.notify(task.error or "The import failed.", severity="error", markup=False)

    @work(exclusive=True, group="dialog", exit_on_error=False)
    async def action_delete_model(self) -> None:
        model = self._model()
        if model is None:
            return
        loaded = " It is loaded and will be unloaded first." if model.loaded else ""
        consequence = f"Its {format_bytes(model.size_bytes)} on disk are freed.{loaded}"
        if await self.app.push_screen_wait(Confirm(f"Delete {model.name}?", consequence, "delete it")):
            removed = await self.session.ask(
                lambda service: service.remove_model(model.name, force=model.loaded)
            )
            if removed is not None:
                self.notify(f"Freed {format_bytes(removed.freed_bytes)}.", timeout=3)

    def action_toggle_fit(self) -> None:
        self.toggle_class("-fit")
        self.query_one("#rows" if self.has_class("-fit") else "#here", Table).focus_list()

    def action_leave(self) -> None:
        self.remove_class("-fit")
        for bar in self.query(SearchBar):
            bar.close()
        self.query_one("#here", Table).focus_list()

    def on_search_bar_sought(self, event: SearchBar.Sought) -> None:
        self._query = event.words
        self._list()

    def on_search_bar_left(self) -> None:
        self.query_one("#here", Table).focus_list()


def context_steps(chosen: int, trained: int | None) -> tuple[int, ...]:
    """The slider's stops: powers of two from 2k to the trained length, that length itself, and the one in use."""
    top = max(trained or 131_072, chosen)
    steps = {chosen, top}
    length = 2048
    while length < top:
        steps.add(length)
        length *= 2
    return tuple(sorted(steps))


def detail_rows(detail: ModelDetail) -> list[tuple[str, str]]:
    """Everything that is known of a model, as names and values."""
    model = detail.summary
    rows: list[tuple[str, str | None]] = [
        ("quantisation", model.quant),
        ("size", format_bytes(model.size_bytes)),
        ("architecture", model.architecture),
        ("parameters", format_count(model.parameters) if model.parameters else None),
        ("trained context", str(model.trained_context_length) if model.trained_context_length else None),
        ("capabilities", ", ".join(model.capabilities)),
        ("owner", model.owner),
        ("file", model.path),
        ("sha256", detail.sha256),
        ("licence", detail.licence),
        ("source", detail.source),
        ("chat template", detail.template_source),
        ("stop", "  ".join(repr(s) for s in detail.stop)),
    ]
    rows += [
        (key, str(value)) for key, value in sorted(detail.facts.items()) if not isinstance(value, dict | list)
    ]
    return [(name, value) for name, value in rows if value]
