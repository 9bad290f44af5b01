"""Recorded machines: what ``localllm hw --save`` writes, for every kind of machine the probes know."""

from __future__ import annotations

from pathlib import Path

from localllm.core.machine import Device, Machine
from localllm.hardware.asking import RawAnswers, ReplayAsker, load_answers
from localllm.hardware.detect import detect

FOLDER = Path(__file__).parents[1] / "data" / "machines"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def answers(name: str) -> RawAnswers:
    return load_answers(FOLDER / f"{name}.json")


def asker(name: str) -> ReplayAsker:
    return ReplayAsker(answers(name))


def machine(name: str, **overrides: str) -> Machine:
    return detect(raw=answers(name), overrides=overrides)


def device(reading: Machine, device_id: str) -> Device:
    return next(found for found in reading.devices if found.id == device_id)


def linux(
    texts: dict[str, str],
    *,
    names: dict[str, list[str]] | None = None,
    targets: dict[str, str] | None = None,
    outputs: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
) -> ReplayAsker:
    """A Linux machine that has these files and nothing else."""
    return ReplayAsker(
        RawAnswers(
            system="Linux",
            architecture="x86_64",
            hostname="test",
            texts=texts,
            names=names or {},
            targets=targets or {},
            outputs=outputs or {},
            environment=environment or {},
        )
    )
