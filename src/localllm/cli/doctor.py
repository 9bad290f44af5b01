"""``localllm doctor``: is everything in order, and if not, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import FAILURE
from localllm.cli.output import Result, emit, paint
from localllm.cli.session import Remote, call, json_option, remote_options
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from localllm.core.control import DoctorReport

_MARKS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "failed": ("fail", "red")}


@click.command()
@json_option
@remote_options
def command(as_json: bool, remote: Remote) -> int:
    """Check the installation, the engines, the store and the machine; exit 1 when something does not work."""
    report = call(remote, lambda client: client.doctor())
    emit(Result("doctor", report, lambda: _lines(report)), as_json=as_json)
    return FAILURE if any(check.state == "failed" for check in report.checks) else 0


def _lines(report: DoctorReport) -> Iterator[str]:
    for check in report.checks:
        mark, style = _MARKS[check.state]
        yield f"{paint(mark.ljust(4), style)}  {clean_text(check.name)}: {clean_text(check.message)}"
        if check.hint and check.state != "ok":
            yield f"      {clean_text(check.hint)}"
