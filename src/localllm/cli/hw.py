"""``localllm hw``: what this machine is, what is free on it, and how that is known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, table
from localllm.cli.session import Remote, call, json_option, remote_options
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from localllm.core.machine import Machine


@click.command()
@click.option(
    "--explain", is_flag=True, help="Every source that was asked, its answer, and which one was used."
)
@click.option(
    "--simulate", metavar="GPU", help="Show another machine: 'RTX 4090', '2x RTX 3090', 'M3 Max 64GB'."
)
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE", help="Write the raw answers to FILE."
)
@click.option(
    "--replay", type=click.Path(path_type=Path), metavar="FILE", help="Read the answers in FILE again."
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="DEVICE.FIELD=VALUE",
    help="Believe this instead, this once: cuda0.free_bytes=20GiB; repeatable. For good: hardware.overrides.",
)
@click.option("--devices", is_flag=True, help="List the devices that --simulate knows.")
@json_option
@remote_options
def command(
    explain: bool,
    simulate: str | None,
    save: Path | None,
    replay: Path | None,
    overrides: tuple[str, ...],
    devices: bool,
    as_json: bool,
    remote: Remote,
) -> None:
    """Processors, memory, what is free now and what a model may take of it. Needs no running service."""
    if devices:
        _list_devices(as_json)
        return
    if remote.host is not None:
        machine = call(remote, lambda client: client.hardware())
    elif simulate is not None:
        from localllm.hardware.simulate import simulate as simulated

        machine = simulated(simulate)
    else:
        machine = _detect(overrides, save, replay)
    emit(Result("hardware", machine, lambda: _lines(machine, explain)), as_json=as_json)


def _detect(typed: tuple[str, ...], save: Path | None, replay: Path | None) -> Machine:
    """This machine, or the one in ``replay``; what was typed beats what is set, which beats what is found."""
    from localllm.cli.local_model import local_overrides, this_machine
    from localllm.hardware.asking import load_answers, save_answers
    from localllm.hardware.detect import detect_with_answers
    from localllm.hardware.overrides import apply_overrides, parse_overrides

    if save is None and replay is None:
        return apply_overrides(this_machine(), parse_overrides(typed))
    overrides = {**local_overrides(), **parse_overrides(typed)}
    raw = load_answers(replay) if replay is not None else None
    detection = detect_with_answers(overrides=overrides, raw=raw)
    if save is not None:
        save_answers(detection.answers, save)
        say(f"Wrote the raw answers to {save}; they name this machine's hardware and running programs.")
    return detection.machine


def _lines(machine: Machine, explained: bool) -> Iterator[str]:
    from localllm.hardware.explain import explain, report

    text = explain(machine) if explained else report(machine)
    for line in text.splitlines():
        yield clean_text(line)


def _list_devices(as_json: bool) -> None:
    from localllm.core.units import format_bytes
    from localllm.hardware.devices import load_device_table

    rows = load_device_table()

    def lines() -> Iterator[str]:
        columns = [Column("device"), Column("memory", right=True), Column("GB/s", right=True)]
        yield from table(
            columns,
            [
                (
                    row.name,
                    format_bytes(row.memory_bytes) if row.memory_bytes else None,
                    f"{row.bandwidth_gb_per_s:.0f}" if row.bandwidth_gb_per_s else None,
                )
                for row in rows
            ],
        )

    emit(Result("devices", rows, lines), as_json=as_json)
