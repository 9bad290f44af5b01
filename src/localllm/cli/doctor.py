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
    from localllm.core.errors import LocalLLMError

_MARKS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "failed": ("fail", "red")}


@click.command()
@json_option
@remote_options
def command(as_json: bool, remote: Remote) -> int:
    """Check the installation, the engines, the store and the machine; exit 1 when something does not work."""
    from localllm.core.errors import LocalLLMError

    try:
        report = call(remote, lambda client: client.doctor())
    except LocalLLMError as error:
        if remote.host is not None:
            raise
        report = _without_service(error)
    emit(Result("doctor", report, lambda: _lines(report)), as_json=as_json)
    return FAILURE if any(check.state == "failed" for check in report.checks) else 0


def _without_service(error: LocalLLMError) -> DoctorReport:
    """What can be found out when the service does not come up: most often the reason why."""
    from localllm.cli.local_store import local_store
    from localllm.core.control import Check, DoctorReport
    from localllm.settings.load import load_settings
    from localllm.settings.paths import resolve_paths

    paths = resolve_paths()
    checks = [
        Check(name="configuration", state="failed", message=problem.message, hint=problem.hint)
        for problem in load_settings(paths, tolerant=True).problems
    ] or [Check(name="configuration", state="ok", message=str(paths.config_file))]
    scan = local_store().scan()
    checks += [Check(name="models", state="warning", message=problem) for problem in scan.problems]
    checks.append(Check(name="models", state="ok", message=f"{len(scan.models)} here"))
    checks.append(Check(name="service", state="failed", message=error.message, hint=error.hint))
    return DoctorReport(checks=tuple(checks))


def _lines(report: DoctorReport) -> Iterator[str]:
    for check in report.checks:
        mark, style = _MARKS[check.state]
        yield f"{paint(mark.ljust(4), style)}  {clean_text(check.name)}: {clean_text(check.message)}"
        if check.hint and check.state != "ok":
            yield from (f"      {line}" for line in clean_text(check.hint).splitlines())
