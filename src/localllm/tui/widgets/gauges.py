"""The lines of the monitor: devices, engines and running requests, aligned in columns that fit the width."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from localllm.core.control import ActiveRequest, InstancePhase, InstanceState, RequestPhase
from localllm.core.machine import DeviceSample
from localllm.tui import figures
from localllm.tui.widgets.line import clipped, text
from localllm.tui.widgets.model_facts import phase_mark
from localllm.tui.widgets.status_strip import NEARLY_FULL, level_colour
from localllm.tui.widgets.table import Column, Meter, Row, aligned, layout

DEVICE_COLUMNS = (
    Column("name", "", 14, 10, grow=True),
    Column("bar", "", 6, 6, grow=True),
    Column("memory", "memory", 13, 10),
    Column("use", "busy", 5, 9, right=True),
    Column("usebar", "", 8, 3),
    Column("temperature", "temp", 5, 8, right=True),
    Column("power", "power", 5, 7, right=True),
    Column("clock", "clock", 7, 4, right=True),
    Column("note", "", 9, 9),
)
ENGINE_COLUMNS = (
    Column("name", "", 16, 10, grow=True),
    Column("phase", "", 8, 9),
    Column("engine", "engine", 12, 2),
    Column("slots", "slots", 6, 7),
    Column("kvbar", "", 6, 4, grow=True),
    Column("kv", "KV cells", 9, 8),
    Column("speed", "tok/s", 5, 8, right=True),
    Column("memory", "used/plan GiB", 13, 9),
    Column("layers", "on GPU", 7, 3),
)
REQUEST_COLUMNS = (
    Column("phase", "", 8, 10),
    Column("model", "model", 12, 8, grow=True),
    Column("client", "client", 8, 5),
    Column("endpoint", "endpoint", 16, 3),
    Column("progress", "prompt", 9, 7, right=True),
    Column("tokens", "out", 5, 9, right=True),
    Column("speed", "tok/s", 5, 9, right=True),
    Column("age", "for", 6, 6, right=True),
)


class Lines(Static):
    """Headed, aligned lines without a cursor; redraws when a cell has changed."""

    DEFAULT_CSS = "Lines { height: auto; padding: 0 1; }"

    def __init__(self, columns: Sequence[Column], *, empty: str, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._columns = tuple(columns)
        self._empty = empty
        self._rows: tuple[Row, ...] = ()
        self._drawn: Content | None = None

    def show(self, rows: Sequence[Row]) -> None:
        self._rows = tuple(rows)
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        width = self.content_size.width
        if not width:
            return
        if not self._rows:
            content = text((self._empty, "$quiet"))
        else:
            columns = layout(self._columns, width)
            heading = aligned({c.key: text((c.title, "$quiet")) for c, _ in columns}, columns)
            content = Content("\n").join([heading, *(aligned(row.cells, columns) for row in self._rows)])
        if self._drawn is None or not content.is_same(self._drawn):
            self._drawn = content
            self.update(content)


def device_row(device: DeviceSample) -> Row:
    """Memory first: it is what decides."""
    share = figures.share(device.memory_used_bytes, device.memory_total_bytes)
    colour = level_colour(share)
    use = device.utilisation_percent
    hot = device.temperature_celsius is not None and device.temperature_celsius >= 85
    return Row(
        device.id,
        {
            "name": text((_short(device.name), "bold")),
            "bar": Meter(share or 0.0, "$accent" if colour == "$foreground" else colour),
            "memory": text(
                (figures.gib(device.memory_used_bytes), colour),
                (f"/{figures.gib(device.memory_total_bytes)} GiB", "$quiet"),
            ),
            "use": f"{use:.0f} %" if use is not None else figures.UNKNOWN,
            "usebar": Meter((use or 0.0) / 100, "$accent"),
            "temperature": text((_with_unit(device.temperature_celsius, " °C"), "$error" if hot else "")),
            "power": _with_unit(device.power_watts, " W"),
            "clock": f"{device.clock_mhz / 1000:.1f} GHz" if device.clock_mhz else figures.UNKNOWN,
            "note": text((device.throttled or "", "$warning")),
        },
    )


def engine_row(instance: InstanceState) -> Row:
    """Planned against measured memory side by side: the planner has to be believed, so it is checked in the open."""
    share = figures.share(instance.kv_used_tokens, instance.kv_total_tokens)
    over = (
        instance.measured_bytes is not None
        and instance.planned_bytes is not None
        and instance.measured_bytes > 1.05 * instance.planned_bytes
    )
    phase = instance.phase.value
    if instance.phase is InstancePhase.LOADING and instance.progress is not None:
        phase = f"{instance.progress * 100:.0f} %"
    waiting = f" +{instance.waiting}" if instance.waiting else ""
    broken = instance.phase in (InstancePhase.CRASHED, InstancePhase.QUARANTINED)
    on_cpu = (
        instance.gpu_layers is not None
        and instance.total_layers is not None
        and (0 < instance.gpu_layers < instance.total_layers)
    )
    layers = _layers(instance)
    return Row(
        instance.model,
        {
            "name": phase_mark(instance) + text(" ", (instance.model, "bold")),
            "phase": text((phase, "$error" if broken else "")),
            "engine": text((instance.engine, "$quiet")),
            "slots": text(f"{instance.running}/{instance.parallel or 1}", (waiting, "$warning")),
            "kvbar": Meter(share or 0.0, level_colour(share) if (share or 0) > NEARLY_FULL else "$accent"),
            "kv": f"{figures.tokens(instance.kv_used_tokens)}/{figures.context(instance.kv_total_tokens)}",
            "speed": figures.speed(instance.tokens_per_second),
            "memory": text(
                (figures.gib(instance.measured_bytes), "$warning" if over else ""),
                (f" / {figures.gib(instance.planned_bytes)}", "$quiet"),
            ),
            "layers": text((layers, "$warning" if on_cpu else "$quiet")),
        },
    )


def _layers(instance: InstanceState) -> str:
    """``37/37``, ``CPU`` for none, and as much of it as is known."""
    if instance.gpu_layers is None:
        return ""
    if instance.gpu_layers == 0:
        return "CPU"
    return f"{instance.gpu_layers}/{instance.total_layers or '?'}"


def request_row(request: ActiveRequest, now: float) -> Row:
    """One running request; a queued one says its place."""
    phase, colour = request.phase.value, "$success" if request.phase is RequestPhase.DECODE else "$warning"
    if request.phase is RequestPhase.QUEUED and request.queue_position is not None:
        phase = f"queue {request.queue_position}"
    prompt = figures.tokens(request.prompt_tokens)
    if request.phase is RequestPhase.PREFILL and request.prefilled_tokens is not None:
        prompt = f"{figures.tokens(request.prefilled_tokens)}/{prompt}"
    return Row(
        request.id,
        {
            "phase": text((phase, colour)),
            "model": request.model,
            "client": text((request.client or "", "$quiet")),
            "endpoint": text((request.endpoint.removeprefix("/v1/"), "$quiet")),
            "progress": prompt,
            "tokens": figures.tokens(request.completion_tokens),
            "speed": figures.speed(request.tokens_per_second),
            "age": figures.lasting(max(0.0, now - request.started_at)),
        },
    )


def _short(name: str) -> str:
    """A card's name without the words that every card of its maker has."""
    for word in ("NVIDIA ", "GeForce ", "AMD ", "Intel(R) ", "Core(TM) ", "Radeon ", "(R)", "(TM)"):
        name = name.replace(word, "")
    return clipped(name.strip(), 24)


def _with_unit(value: float | None, unit: str) -> str:
    return figures.UNKNOWN if value is None else f"{value:.0f}{unit}"
