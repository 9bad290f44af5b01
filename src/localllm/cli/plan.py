"""``localllm plan``: how a model would be loaded, as flags of other programs too, and what hardware it would need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from msgspec import Struct, structs

from localllm.cli.arguments import as_option, complete_model, context_options, profile_option, simulate_option
from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, paint, pairs, table
from localllm.cli.session import json_option
from localllm.core.launch import LaunchPlan
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from localllm.cli.local_model import LocalModel
    from localllm.core.hardware_for import Candidate, HardwareNeed
    from localllm.core.machine import Machine
    from localllm.core.memory import DeviceEstimate
    from localllm.core.plan import Plan

_USUAL_CONTEXT = 8_192


class Exported(Struct, frozen=True, kw_only=True):
    """What ``--as … --json`` prints: the text, and the plan that it says."""

    target: str
    text: str
    plan: LaunchPlan
    reason: str
    warnings: tuple[str, ...] = ()


@click.command()
@click.argument("model", shell_complete=complete_model)
@context_options
@profile_option()
@simulate_option
@as_option
@click.option("--hardware-for", is_flag=True, help="Which hardware would run MODEL whole, and how fast.")
@json_option
def command(
    model: str,
    context_length: int | None,
    kv_type: str | None,
    parallel: int | None,
    profile: str | None,
    simulate: str | None,
    target: str | None,
    hardware_for: bool,
    as_json: bool,
) -> None:
    """How MODEL would be loaded here: what goes where, how much memory it takes, and why.

    MODEL is a name in the store, a GGUF file, or a well-known model that is not here (Qwen3-32B, Qwen3-32B:Q6_K), which
    is planned from its published figures. Nothing is loaded.
    """
    from localllm.cli.local_model import find_model_or_figures, machine_for

    found = find_model_or_figures(model)
    if not found.here:
        say(f"{found.name} is not here; planned from its published figures.")
    if hardware_for:
        _print_need(found, context_length, kv_type, parallel, as_json=as_json)
        return
    machine = machine_for(simulate)
    plan = plan_as_load(found, machine, context_length, kv_type, parallel, profile)
    if target is not None:
        print_export(found, machine, plan, target, as_json=as_json)
        return
    emit(Result("plan", plan, lambda: _lines(found.name, plan, machine)), as_json=as_json)


def plan_as_load(
    model: LocalModel,
    machine: Machine,
    context_length: int | None,
    kv_type: str | None,
    parallel: int | None,
    profile: str | None,
) -> Plan:
    """The plan ``localllm load`` would make on ``machine``: what is not said comes from the settings. Raises DoesNotFit."""
    from localllm.cli.local_model import speed_ratios, taught_here
    from localllm.core.plan import Profile, Wish, plan_load
    from localllm.core.speed import corrected
    from localllm.hardware.devices import load_device_table
    from localllm.settings.load import load_settings
    from localllm.settings.paths import resolve_paths

    settings = load_settings(resolve_paths(), tolerant=True).settings.engine
    wish = Wish(
        context_length=context_length or (settings.context_length if profile is None else None),
        parallel=parallel or settings.parallel,
        kv_type=kv_type or settings.kv_type,
        gpu_layers=settings.gpu_layers,
        threads=settings.threads,
        profile=Profile(profile) if profile else None,
    )
    plan = plan_load(
        model.facts,
        machine,
        wish,
        model_path=str(model.path),
        device_table=load_device_table(),
        corrections=taught_here(machine),
    )
    if plan.speed is None:
        return plan
    return structs.replace(plan, speed=corrected(plan.speed, speed_ratios(model, machine)))


def print_export(model: LocalModel, machine: Machine, plan: Plan, target: str, *, as_json: bool) -> None:
    """The plan as ``target`` takes it, on stdout; what the person should know about it, on stderr."""
    from localllm.core.export import Target, export

    chosen = Target(target)
    weights = original_weights(model)
    used = sum(1 for gpu in machine.gpus if plan.memory.on(gpu.id).weights)
    text = export(plan.launch, chosen, model=weights, gpus=max(used, 1))
    exported = Exported(
        target=target, text=text, plan=plan.launch, reason=plan.reason, warnings=plan.warnings
    )
    emit(Result("export", exported, lambda: iter([text.rstrip("\n")])), as_json=as_json)
    for warning in plan.warnings:
        say(f"Note: {warning}")
    if chosen in (Target.VLLM, Target.SGLANG):
        say(f"It loads the original weights, not a GGUF: from {weights}.")
        if "/" not in weights:
            say("The catalogue does not know their repository: put ORG/REPO in the place of that name.")


def original_weights(model: LocalModel) -> str:
    """The repository of the model's unquantised weights where the catalogue knows it, else the model's name."""
    from localllm.cli.local_model import catalogue

    name = model.facts.name or ""
    called = {name.lower(), model.name.partition(":")[0].lower()}
    for known in catalogue():
        if known.makers_repository and called & {known.name, *known.aliases}:
            return known.makers_repository
    return name or model.name.partition(":")[0]


def _print_need(
    model: LocalModel,
    context_length: int | None,
    kv_type: str | None,
    parallel: int | None,
    *,
    as_json: bool,
) -> None:
    from localllm.core.hardware_for import hardware_for
    from localllm.hardware.devices import load_device_table

    need = hardware_for(
        model.facts,
        load_device_table(),
        context_length=context_length
        or min(model.facts.trained_context_length or _USUAL_CONTEXT, _USUAL_CONTEXT),
        parallel=parallel or 1,
        kv_type=kv_type or "f16",
    )
    emit(Result("hardware_need", need, lambda: _need_lines(model.name, need)), as_json=as_json)


def _lines(name: str, plan: Plan, machine: Machine) -> Iterator[str]:
    from localllm.core.units import format_bytes, format_context

    launch = plan.launch
    yield paint(
        clean_text(f"{name} on {' + '.join(d.name for d in machine.gpus) or machine.cpu.name}"), "bold"
    )
    yield clean_text(plan.reason)
    yield ""
    names = {device.id: device.name for device in machine.devices}
    free = {device.id: device.usable_bytes for device in machine.devices}
    columns = [
        Column("device"),
        *(Column(title, right=True, spare=4) for title in ("weights", "KV", "compute", "other")),
        Column("total", right=True),
        Column("usable", right=True),
    ]
    yield from table(
        columns,
        [_device_row(part, names, format_bytes(free.get(part.device_id, 0))) for part in plan.memory.devices],
    )
    yield ""
    speed = plan.speed
    moe = f", experts of {launch.cpu_moe_layers} layers on the CPU" if launch.cpu_moe_layers else ""
    yield from pairs(
        [
            ("context", f"{format_context(launch.context_length)} × {launch.parallel}"),
            ("KV cache", launch.kv_type_k),
            ("GPU layers", f"{launch.gpu_layers}{moe}" if machine.gpus else None),
            ("batch", f"{launch.batch}, {launch.ubatch} at once"),
            ("speed", _speed(speed.decode, speed.decode_low, speed.decode_high) if speed else None),
            ("because", speed.reason if speed else None),
        ]
    )
    for warning in plan.warnings:
        yield paint("Note: ", "yellow") + clean_text(warning)


def _device_row(part: DeviceEstimate, names: dict[str, str], usable: str) -> tuple[str | None, ...]:
    from localllm.core.units import format_bytes

    sizes = (part.weights, part.kv, part.compute, part.output + part.overhead)
    return (
        names.get(part.device_id, part.device_id),
        *(format_bytes(size) if size else None for size in sizes),
        format_bytes(part.total),
        usable,
    )


def _need_lines(name: str, need: HardwareNeed) -> Iterator[str]:
    from localllm.core.units import format_bytes, format_context

    yield paint(clean_text(f"{name} with {format_context(need.context_length)} of context"), "bold")
    yield f"One GPU needs {format_bytes(need.gpu_bytes)} free for all of it; a CPU alone {format_bytes(need.ram_bytes)} of RAM."
    yield ""
    if not need.candidates:
        yield "No single device that localllm knows holds it whole."
        return
    columns = [
        Column("device"),
        Column("kind", spare=1),
        Column("memory", right=True),
        Column("to spare", right=True, spare=2),
        Column("tok/s", right=True),
    ]
    yield from table(columns, [_candidate_row(candidate) for candidate in need.candidates])


def _candidate_row(candidate: Candidate) -> tuple[str | None, ...]:
    from localllm.core.units import format_bytes

    decode, low, high = (
        candidate.decode_tokens_per_second,
        candidate.decode_low,
        candidate.decode_high,
    )
    return (
        candidate.device,
        candidate.device_class,
        format_bytes(candidate.memory_bytes),
        format_bytes(candidate.spare_bytes),
        _speed(decode, low, high) if decode is not None and low is not None and high is not None else None,
    )


def _speed(decode: float, low: float, high: float) -> str:
    return f"{decode:.0f} ({low:.0f}–{high:.0f})" if decode >= 10 else f"{decode:.1f} ({low:.1f}–{high:.1f})"
