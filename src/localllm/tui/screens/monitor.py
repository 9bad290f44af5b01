"""The monitor: devices, engines, running requests, and the last minutes as plots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.timer import Timer

from localllm.core.control import History
from localllm.core.machine import DeviceKind
from localllm.tui import figures, plots
from localllm.tui.actions import Scope, bindings
from localllm.tui.screens.frame import FrameScreen
from localllm.tui.session import Session
from localllm.tui.state import AppState
from localllm.tui.widgets.gauges import (
    DEVICE_COLUMNS,
    ENGINE_COLUMNS,
    REQUEST_COLUMNS,
    Lines,
    device_row,
    engine_row,
    request_row,
)
from localllm.tui.widgets.line import entitle, text
from localllm.tui.widgets.plot import Plot

# (seconds shown, seconds between two readings): a new column of the plot is due about then
WINDOWS = ((300.0, 2.0), (3600.0, 20.0))
# As many as the widest plot has columns of dots, so that no reading is drawn twice.
STEPS = 150
MEMORY = "memory_used_bytes"
WINDOW_NAMES = ("5 min", "1 h")


class MonitorScreen(FrameScreen):
    scope = Scope.MONITOR
    CSS_PATH = "monitor.tcss"
    BINDINGS = bindings(Scope.MONITOR)
    AUTO_FOCUS: ClassVar[str | None] = ""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._window = 0
        self._ascii = session.ascii_plots
        self._history: History | None = None
        self._timer: Timer | None = None

    def body(self) -> ComposeResult:
        with Vertical():
            with Vertical(id="devices", classes="pane") as pane:
                pane.border_title = Content("Devices")
                yield Lines(DEVICE_COLUMNS, empty="No reading yet.", id="device-lines")
            with Vertical(id="engines", classes="pane") as pane:
                pane.border_title = Content("Engines")
                yield Lines(ENGINE_COLUMNS, empty="No model is loaded.", id="engine-lines")
            with Horizontal(id="plots"):
                yield Plot("tok/s", "$success", id="plot-speed")
                yield Plot("TTFT", "$accent", id="plot-ttft")
                yield Plot("TPOT", "$accent", id="plot-tpot")
                yield Plot("memory", "$secondary", id="plot-memory")
            with Vertical(id="running", classes="pane") as pane:
                pane.border_title = Content("Requests")
                yield Lines(REQUEST_COLUMNS, empty="Nothing is running.", id="request-lines")

    # ------------------------------------------------------------ facts

    def facts(self, state: AppState) -> None:
        service = state.service
        if service is None:
            return
        gpus_first = sorted(service.devices, key=lambda d: d.kind is not DeviceKind.GPU)
        self.query_one("#device-lines", Lines).show([device_row(d) for d in gpus_first])
        self.query_one("#engine-lines", Lines).show([engine_row(i) for i in service.instances])
        self.query_one("#request-lines", Lines).show([request_row(r, state.at) for r in service.requests])
        waiting = f"  {service.live.waiting} waiting" if service.live.waiting else ""
        if self._history is None:
            self.read_history()
        title = text("Requests ", (str(service.live.running), "$quiet"), (waiting, "$warning"))
        entitle(self.query_one("#running"), title)

    def on_screen_resume(self) -> None:
        self._start()

    def on_screen_suspend(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _start(self) -> None:
        self.on_screen_suspend()
        self.read_history()
        pause = WINDOWS[self._window][1] * (2.5 if self.session.low_bandwidth else 1.0)
        self._timer = self.set_interval(pause, self.read_history)

    @work(exclusive=True, group="history", exit_on_error=False)
    async def read_history(self) -> None:
        """Read the plots' window anew; a lost line has its banner and needs no second word."""
        if self.state.service is None:
            return
        history = await self.session.ask(lambda service: service.history(WINDOWS[self._window][0]))
        if history is not None:
            self._history = history
            self._draw_plots()

    def _draw_plots(self) -> None:
        if self._history is None:
            return
        history, seconds = self._history, WINDOWS[self._window][0]
        series = {s.name: plots.over_time(history.times, s.values, seconds, STEPS) for s in history.series}
        span = WINDOW_NAMES[self._window]
        for plot_id, name in (("speed", "tokens_per_second"), ("ttft", "ttft_ms"), ("tpot", "tpot_ms")):
            values = series.get(name, [])
            in_ms = name.endswith("_ms")
            newest = next((v for v in reversed(values) if v is not None), None)
            self.query_one(f"#plot-{plot_id}", Plot).show(
                values,
                newest=figures.milliseconds(newest) if in_ms else figures.speed(newest),
                scale=f"{_scale(plots.ceiling(values), in_ms=in_ms)} · {span}",
                ascii_only=self._ascii,
            )
        self._draw_memory(series, span)

    def _draw_memory(self, series: Mapping[str, list[float | None]], span: str) -> None:
        """The memory that matters most: the first GPU's, else the machine's."""
        devices = self.state.service.devices if self.state.service else ()
        ranked = sorted(devices, key=lambda d: d.kind is not DeviceKind.GPU)
        device = next((d for d in ranked if f"{d.id}:{MEMORY}" in series), None)
        values = series[f"{device.id}:{MEMORY}"] if device else []
        total = device.memory_total_bytes if device else None
        used = next((int(v) for v in reversed(values) if v is not None), None)
        self.query_one("#plot-memory", Plot).show(
            values,
            newest=f"{figures.gib(used)} GiB",
            scale=f"{figures.gib(total)} · {span}",
            top=float(total) if total else None,
            ascii_only=self._ascii,
        )

    # ------------------------------------------------------------ actions

    def action_window(self) -> None:
        self._window = (self._window + 1) % len(WINDOWS)
        self._start()

    def action_plots(self) -> None:
        self._ascii = not self._ascii
        self._draw_plots()


def _scale(top: float, *, in_ms: bool) -> str:
    return figures.milliseconds(top) if in_ms else f"{top:.0f}"
