"""The man page, from the same source as the page of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from generators.commands import ENVIRONMENT, commands, help_text, options, usage
from localllm._version import __version__
from localllm.cli.diagnostics import EXIT_MEANINGS
from localllm.cli.main import cli


def page() -> Iterator[str]:
    yield r".\" Written by docs/generate.py from the code; edit that instead."
    yield f'.TH LOCALLLM 1 "" "localllm {__version__}" "User Commands"'
    yield ".SH NAME\nlocalllm \\- run language models on your own machine"
    yield ".SH SYNOPSIS\n.B localllm\n[\\fIOPTIONS\\fR] [\\fICOMMAND\\fR [\\fIARGS\\fR]]"
    yield f".SH DESCRIPTION\n{_roff(help_text(cli))}"
    yield ".PP\nData goes to standard output, everything else to standard error. What reads takes \\fB\\-\\-json\\fR."
    shown = ""
    for title, _, command, context in commands():
        if title != shown:
            shown = title
            yield f'.SH "{title.upper()}"'
        yield f'.SS "{_roff(usage(command, context))}"'
        yield _roff(help_text(command))
        for names, text in options(command, context):
            yield f".TP\n.B {_roff(names)}\n{_roff(text)}"
    yield '.SH "OPTIONS BEFORE ANY COMMAND"'
    for names, text in options(cli, click.Context(cli, info_name="localllm")):
        yield f".TP\n.B {_roff(names)}\n{_roff(text)}"
    yield ".SH ENVIRONMENT"
    for variable, text in ENVIRONMENT:
        yield f".TP\n.B {variable}\n{_roff(text.replace('`', ''))}"
    yield '.SH "EXIT STATUS"'
    for code, text in EXIT_MEANINGS.items():
        yield f".TP\n.B {code}\n{_roff(text)}"
    yield ".SH FILES\n.TP\n.B config.toml\nSettings; \\fBlocalllm config path\\fR prints where it is."
    yield ".SH SEE ALSO\nThe documentation in the folder docs of the source, and \\fBlocalllm\\fR \\fICOMMAND\\fR \\fB\\-\\-help\\fR."


def _roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = re.sub(r"```\n(.*?)\n```", r".nf\n\1\n.fi", text, flags=re.DOTALL)
    lines = [
        ("\\&" + line if line.startswith(("'", ".")) and line not in (".nf", ".fi") else line)
        for line in text.split("\n")
    ]
    return "\n".join(".PP" if line == "" else line for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")
