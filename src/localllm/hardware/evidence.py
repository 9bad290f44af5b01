"""Choosing one value from several sources, and keeping what every source said for ``hw --explain``."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from msgspec import structs

from localllm.core.machine import Device, Evidence

Value = TypeVar("Value", int, float, str)


class Answer(NamedTuple, Generic[Value]):
    """What one source said about a field; ``None`` = it was asked and does not know."""

    source: str
    value: Value | None
    note: str | None = None


class EvidenceBook:
    """Collects the evidence about one device while its fields are chosen."""

    def __init__(self) -> None:
        self._entries: list[Evidence] = []

    def first(self, field: str, *answers: Answer[Value]) -> Value | None:
        """The first answer that knows; sources are given best first."""
        winner = next((answer for answer in answers if answer.value is not None), None)
        return self._keep(field, answers, winner)

    def lowest(self, field: str, *answers: Answer[Value]) -> Value | None:
        """The smallest answer: for limits that hold together."""
        known = [answer for answer in answers if answer.value is not None]
        winner = min(known, key=_value, default=None)
        return self._keep(field, answers, winner)

    def note(self, field: str, source: str, value: str, note: str | None = None) -> None:
        """Keep a fact that nothing was chosen from."""
        self._entries.append(Evidence(field=field, source=source, value=value, used=False, note=note))

    def entries(self) -> tuple[Evidence, ...]:
        return tuple(self._entries)

    def _keep(
        self, field: str, answers: tuple[Answer[Value], ...], winner: Answer[Value] | None
    ) -> Value | None:
        for answer in answers:
            value = "unknown" if answer.value is None else str(answer.value)
            self._entries.append(
                Evidence(
                    field=field, source=answer.source, value=value, used=answer is winner, note=answer.note
                )
            )
        return None if winner is None else winner.value


def overrule(
    device: Device, field: str, source: str, value: float | str | None, *, note: str | None = None
) -> Device:
    """The device with ``field`` taken from ``source``, and its evidence saying so."""
    others = tuple(
        structs.replace(entry, used=False) if entry.field == field else entry for entry in device.evidence
    )
    shown = "unknown" if value is None else str(value)
    evidence = (*others, Evidence(field=field, source=source, value=shown, used=True, note=note))
    return structs.replace(device, **{field: value, "evidence": evidence})


def _value(answer: Answer[Value]) -> Value:
    assert answer.value is not None
    return answer.value
