"""The strip at the foot of every screen: what is loaded, how fast it is, how full the machine is.

It is made of segments, each in forms from long to short; what does not fit is shortened and then dropped, the least
important first, so that 80 columns still say everything that matters.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content
from textual.reactive import var

from localllm.core.control import InstancePhase, InstanceState
from localllm.core.machine import DeviceSample
from localllm.tui import figures, plots
from localllm.tui.state import AppState
from localllm.tui.widgets.line import Line, clipped, text

FULL = 0.90
NEARLY_FULL = 0.80


@dataclass(frozen=True, slots=True)
class Segment:
    """``forms`` from long to short, the last one before it is dropped; a greater ``weight`` stays longer."""

    weight: int
    forms: tuple[Content, ...]


class StatusStrip(Line):
    """``state`` in, nothing out."""

    DEFAULT_CSS = "StatusStrip { background: $panel; padding: 0 1; }"

    state: var[AppState] = var(AppState)

    def __init__(self, *, ascii_plots: bool = False) -> None:
        super().__init__()
        self._ascii = ascii_plots

    def watch_state(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        if self.size.width:
            parts = segments(self.state, ascii_only=self._ascii)
            self.say(fitted(parts, self.content_size.width))


def segments(state: AppState, *, ascii_only: bool = False) -> list[Segment]:
    """The strip's segments for a state, left to right."""
    if state.service is None:
        return [Segment(9, (text(("waiting for the service…", "$quiet")),))]
    instance = state.instance
    parts = [_model(state, instance)]
    if instance is not None and instance.phase is InstancePhase.LOADING:
        parts.append(_loading(instance))
    else:
        parts.append(_speed(state, ascii_only=ascii_only))
    live = state.service.live
    if live.last_ttft_ms is not None:
        shown = figures.milliseconds(live.last_ttft_ms)
        parts.append(Segment(5, (text(("TTFT ", "$quiet"), shown),)))
    context = _context(state, instance)
    if context is not None:
        parts.append(context)
    parts += [
        _memory("VRAM" if len(state.gpus) == 1 else f"GPU{i}", gpu, 7) for i, gpu in enumerate(state.gpus)
    ]
    if state.cpu is not None:
        parts.append(_memory("RAM", state.cpu, 6))
    if live.running or live.waiting:
        waiting = f"+{live.waiting}" if live.waiting else ""
        colour = "$warning" if live.waiting else "$foreground"
        parts.append(Segment(3, (text((f"{live.running}{waiting}", colour), (" req", "$quiet")),)))
    return parts


def fitted(parts: list[Segment], width: int) -> Content:
    """The segments, two blanks between, in at most ``width`` cells.

    First as many as fit in their shortest form, the weightiest first; then the room left makes them longer.
    """
    order = sorted(range(len(parts)), key=lambda i: -parts[i].weight)
    form: dict[int, int] = {}

    def room(index: int, candidate: int) -> bool:
        trial = form | {index: candidate}
        cells = sum(parts[i].forms[f].cell_length for i, f in trial.items())
        return cells + 2 * (len(trial) - 1) <= width

    for index in order:
        shortest = len(parts[index].forms) - 1
        if room(index, shortest) or not form:
            form[index] = shortest
    for index in order:
        while form.get(index, 0) > 0 and room(index, form[index] - 1):
            form[index] -= 1
    shown = Content("  ").join([parts[i].forms[form[i]] for i in sorted(form)])
    return shown.truncate(width, ellipsis=True)


def _model(state: AppState, instance: InstanceState | None) -> Segment:
    if instance is None:
        return Segment(9, (text(("no model loaded", "$quiet")),))
    crashed = instance.phase in (InstancePhase.CRASHED, InstancePhase.QUARANTINED)
    style = "bold $error" if crashed else "bold"
    models = state.service.models if state.service else ()
    quant = next((m.quant for m in models if m.name == instance.model), None)
    named = quant is not None and quant.lower() in instance.model.lower()
    long = text((clipped(instance.model, 26), style))
    short = text((clipped(instance.model, 18), style))
    if crashed:
        return Segment(
            9, (long + text((f" {instance.phase.value}", "$error")), short + text((" ✗", "$error")))
        )
    if quant is None or named:
        return Segment(9, (long, short))
    return Segment(9, (long + text((f" {quant}", "$quiet")), long, short))


def _loading(instance: InstanceState) -> Segment:
    percent = f" {instance.progress * 100:.0f} %" if instance.progress is not None else ""
    stage = f" {instance.stage}" if instance.stage else ""
    return Segment(
        8, (text((f"loading{percent}{stage}", "$warning")), text((f"loading{percent}", "$warning")))
    )


def _speed(state: AppState, *, ascii_only: bool) -> Segment:
    assert state.service is not None
    live = state.service.live
    buckets = state.pace_buckets()
    curve = plots.spark(buckets, ascii_only=ascii_only).lstrip()
    half = plots.spark(buckets[len(buckets) // 2 :], ascii_only=ascii_only).lstrip()
    if live.tokens_per_second is not None:
        value = text((figures.speed(live.tokens_per_second), "bold $success"), (" tok/s", "$quiet"))
        return Segment(
            8, (value + text((f" {curve}", "$success")), value + text((f" {half}", "$success")), value)
        )
    if live.prefill_tokens_per_second is not None:
        value = text(("prefill ", "$quiet"), (figures.speed(live.prefill_tokens_per_second), "$success"))
        return Segment(8, (value + text((" tok/s", "$quiet")), value))
    idle = text(("idle", "$quiet"))
    if live.last_tokens_per_second is None:
        return Segment(4, (idle,))
    last = text(("last ", "$quiet"), figures.speed(live.last_tokens_per_second), (" tok/s", "$quiet"))
    drawn = text((f" {curve}", "$quiet")) if curve else text()
    return Segment(4, (last + drawn, last))


def _context(state: AppState, instance: InstanceState | None) -> Segment | None:
    assert state.service is not None
    live = state.service.live
    length = live.context_length or (instance.context_length if instance else None)
    if length is None:
        return None
    used = live.context_used or 0
    share = used / length
    colour = "$warning" if share >= FULL else "$foreground"
    figure = text(
        ("ctx ", "$quiet"), (figures.tokens(used), colour), (f"/{figures.context(length)}", "$quiet")
    )
    full, empty = plots.bar(share, 5)
    drawn = text((f" {full}", "$accent" if share < FULL else "$warning"), (empty, "$line"))
    return Segment(2, (figure + drawn, figure, text(("ctx ", "$quiet"), (f"{share * 100:.0f} %", colour))))


def _memory(name: str, device: DeviceSample, weight: int) -> Segment:
    used, total = device.memory_used_bytes, device.memory_total_bytes
    share = figures.share(used, total)
    colour = level_colour(share)
    throttled = text((" throttled", "$warning")) if device.throttled else text()
    figure = text((f"{name} ", "$quiet"), (figures.gib(used), colour), (f"/{figures.gib(total)}", "$quiet"))
    return Segment(weight, (figure + throttled, figure) if device.throttled else (figure,))


def level_colour(share: float | None) -> str:
    """The colour of something that fills up: over 90 % is an error in the making, over 80 % a warning."""
    if share is None:
        return "$quiet"
    return "$error" if share >= FULL else "$warning" if share >= NEARLY_FULL else "$foreground"
