"""The page of commands, and what the man page needs of them: read off click."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from generators.markdown import HEAD, cell
from localllm.cli.diagnostics import EXIT_MEANINGS
from localllm.cli.main import VERBS, cli


def commands() -> Iterator[tuple[str, str, click.Command, click.Context]]:
    """(heading of its group, full name, command, context) of every verb and of the verbs below it."""
    root = click.Context(cli, info_name="localllm")
    for title, group in VERBS.items():
        for name in group:
            command = cli.get_command(root, name)
            assert command is not None
            context = click.Context(command, info_name=name, parent=root)
            yield title, name, command, context
            if isinstance(command, click.Group):
                for child in command.list_commands(context):
                    below = command.get_command(context, child)
                    assert below is not None
                    yield (
                        title,
                        f"{name} {child}",
                        below,
                        click.Context(below, info_name=child, parent=context),
                    )


def usage(command: click.Command, context: click.Context) -> str:
    return f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}".strip()


def help_text(command: click.Command) -> str:
    """The help text as paragraphs; click's mark for text that keeps its lines becomes a code block."""
    paragraphs = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            paragraphs.append("```\n" + paragraph.lstrip("\b\n") + "\n```")
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs)


def options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    records = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    return [(names, text) for names, text in filter(None, records) if "--help" not in names]


def page() -> Iterator[str]:
    yield HEAD
    yield "# Commands\n"
    yield "`localllm` without a command opens the terminal app. Every command has `--help`; what reads has `--json`."
    yield "Data goes to stdout, talk to stderr. Colours are left out when `NO_COLOR` is set or stdout is not a terminal.\n"
    yield 'JSON comes in an envelope, `{"version": 1, "kind": …, "data": …}`; an error has the kind `error`.'
    shown = ""
    for title, name, command, context in commands():
        if title != shown:
            shown = title
            yield f"\n## {title}"
        yield f"\n### localllm {name}\n"
        yield f"```\n{usage(command, context)}\n```\n"
        yield help_text(command)
        shown_options = options(command, context)
        if shown_options:
            yield "\n| option | |\n|---|---|"
            for names, text in shown_options:
                yield f"| `{cell(names)}` | {cell(text)} |"
    yield "\n## Before any command\n"
    root = click.Context(cli, info_name="localllm")
    yield "| option | |\n|---|---|"
    for names, text in options(cli, root):
        yield f"| `{cell(names)}` | {cell(text)} |"
    yield "\n## Environment\n"
    yield "| variable | |\n|---|---|"
    for variable, text in ENVIRONMENT:
        yield f"| `{variable}` | {text} |"
    yield "\n## Exit codes\n"
    yield "| code | meaning |\n|---|---|"
    for code, text in EXIT_MEANINGS.items():
        yield f"| {code} | {text} |"


ENVIRONMENT = (
    ("LOCALLLM_HOME", "One folder for everything that localllm keeps; an absolute path"),
    ("LOCALLLM_HOST", "The service to talk to, like `--host`"),
    ("LOCALLLM_KEY", "The admin key of that service, like `--key`"),
    ("LOCALLLM_SECTION_KEY", "Any setting: `LOCALLLM_SERVER_PORT` is `server.port`"),
    ("NO_COLOR", "No colours"),
)
