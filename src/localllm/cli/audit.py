"""``localllm audit``: whether the audit log is as it was written."""

from __future__ import annotations

import click

from localllm.cli.output import Result, emit
from localllm.cli.session import Remote, call, json_option, remote_options


@click.group()
def command() -> None:
    """The audit log: one line per request, each bound to the one before. Switch it on with gateway.audit."""


@command.command()
@json_option
@remote_options
def verify(as_json: bool, remote: Remote) -> None:
    """Check every line; exit 1 and name the first that was changed, or that misses one before it."""
    report = call(remote, lambda client: client.audit())
    lines = "1 line holds" if report.lines == 1 else f"{report.lines} lines hold"
    verdict = f"{lines}." if report.fault is None else f"{report.fault}; {lines} before it."
    emit(Result("audit", report, lambda: iter([verdict])), as_json=as_json)
    if report.fault is not None:
        click.get_current_context().exit(1)
