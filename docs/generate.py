"""The reference pages and the man page, written from the code that they describe.

    python docs/generate.py            write them
    python docs/generate.py --check    exit 1 and name the pages that are not current

A test runs the check, so a verb, a setting, an error or a control type cannot change without its page.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import click
import msgspec
from msgspec import Struct

from localllm._version import __version__
from localllm.api.errors import STATUS
from localllm.cli.diagnostics import EXIT_MEANINGS, exit_code
from localllm.cli.main import VERBS, cli
from localllm.core import control, errors
from localllm.core.errors import LocalLLMError
from localllm.settings.load import default_text
from localllm.settings.schema import all_settings, sections
from localllm.tui.actions import ACTIONS, Scope, shown_key

ROOT = Path(__file__).resolve().parent.parent
WITH_ERRORS = ("localllm.api.errors", "localllm.api.v1.guard", "localllm.tui.main")
"""Modules that add errors of their own to the tree; a test finds any that is missing here."""

HEAD = "<!-- Written by docs/generate.py from the code; edit that instead. -->\n"


def pages() -> dict[str, str]:
    """Every generated file: path from the repository's root → content."""
    return {
        "docs/reference/cli.md": "\n".join(_cli()) + "\n",
        "docs/reference/keys.md": "\n".join(_keys()) + "\n",
        "docs/reference/settings.md": "\n".join(_settings()) + "\n",
        "docs/reference/errors.md": "\n".join(_errors()) + "\n",
        "docs/reference/control-api.md": "\n".join(_control()) + "\n",
        "packaging/man/localllm.1": "\n".join(_man()) + "\n",
    }


# ---------------------------------------------------------------- commands


def _commands() -> Iterator[tuple[str, str, click.Command, click.Context]]:
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


def _usage(command: click.Command, context: click.Context) -> str:
    return f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}".strip()


def _help(command: click.Command) -> str:
    """The help text as paragraphs; click's mark for text that keeps its lines becomes a code block."""
    paragraphs = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            paragraphs.append("```\n" + paragraph.lstrip("\b\n") + "\n```")
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs)


def _options(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    records = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    return [(names, text) for names, text in filter(None, records) if "--help" not in names]


def _cli() -> Iterator[str]:
    yield HEAD
    yield "# Commands\n"
    yield "`localllm` without a command opens the terminal app. Every command has `--help`; what reads has `--json`."
    yield "Data goes to stdout, talk to stderr. Colours are left out when `NO_COLOR` is set or stdout is not a terminal.\n"
    yield 'JSON comes in an envelope, `{"version": 1, "kind": …, "data": …}`; an error has the kind `error`.'
    shown = ""
    for title, name, command, context in _commands():
        if title != shown:
            shown = title
            yield f"\n## {title}"
        yield f"\n### localllm {name}\n"
        yield f"```\n{_usage(command, context)}\n```\n"
        yield _help(command)
        options = _options(command, context)
        if options:
            yield "\n| option | |\n|---|---|"
            for names, text in options:
                yield f"| `{_cell(names)}` | {_cell(text)} |"
    yield "\n## Before any command\n"
    root = click.Context(cli, info_name="localllm")
    yield "| option | |\n|---|---|"
    for names, text in _options(cli, root):
        yield f"| `{_cell(names)}` | {_cell(text)} |"
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


# ---------------------------------------------------------------- settings


def _settings() -> Iterator[str]:
    yield HEAD
    yield "# Settings\n"
    yield "A value typed on the command line beats the environment variable, which beats `config.toml`, which beats the"
    yield "default. `localllm config path` prints where the file is, `localllm config show` every value and where it came"
    yield "from, `localllm config set KEY VALUE` changes one and keeps the file's comments.\n"
    yield '```toml\n[server]\nport = 11500\n\n[engine]\nkv_type = "q8_0"\n```'
    for section in sections():
        yield f"\n## {section}\n"
        for setting in all_settings().values():
            if setting.section != section:
                continue
            yield f"### {setting.key}\n"
            yield f"{setting.help}.\n"
            yield f"- takes: {setting.expectation()}{', or nothing' if setting.optional else ''}"
            yield f"- default: `{default_text(setting)}`"
            yield f"- variable: `{setting.variable}`"
            yield f"- applies: {'when the service starts again' if setting.needs_restart else 'when the app starts again'}\n"


# ---------------------------------------------------------------- keys


def _keys() -> Iterator[str]:
    yield HEAD
    yield "# Keys of the terminal app\n"
    yield "The mouse works, too. In a field, letters are text: leave it with Esc first, or use the key with Ctrl."
    for scope in Scope:
        yield f"\n## {scope.value.capitalize()}\n"
        yield "| key | |\n|---|---|"
        for action in ACTIONS:
            if action.scope is scope:
                keys = ", ".join(f"`{shown_key(key)}`" for key in action.keys)
                yield f"| {_cell(keys)} | {_cell(action.help)} |"


# ---------------------------------------------------------------- errors


def _errors() -> Iterator[str]:
    yield HEAD
    yield "# Errors\n"
    yield "Every failure has a stable code, a message and, where something can be done, a hint. The port answers"
    yield '`{"error": {"message", "type", "param", "code"}}` with the HTTP status below; the command line prints message and'
    yield "hint to stderr and exits with the code in the last column.\n"
    yield "| code | HTTP | exit | meaning |\n|---|---|---|---|"
    for module in WITH_ERRORS:
        import_module(module)
    for code, cls in sorted(errors.all_errors().items()):
        yield f"| `{code}` | {_status(cls)} | {_exit(cls)} | {_cell(_meaning(cls))} |"


def _status(cls: type[LocalLLMError]) -> int:
    return next(STATUS[ancestor] for ancestor in cls.__mro__ if ancestor in STATUS)


def _exit(cls: type[LocalLLMError]) -> int:
    error = cls.__new__(cls)
    return exit_code(error)


def _meaning(cls: type[LocalLLMError]) -> str:
    own = cls.__dict__.get("__doc__")
    if not own:
        raise SystemExit(f"{cls.__module__}.{cls.__name__} ({cls.code}) has no docstring to document it with")
    return " ".join(own.split())


# ---------------------------------------------------------------- control API


def _control() -> Iterator[str]:
    yield HEAD
    yield "# The control API\n"
    yield "What the terminal app and the command line say to the service: HTTP and JSON under `/localllm/`. Every route but"
    yield "`/localllm/identity` needs the admin key (`Authorization: Bearer …`), which lies in `admin.key` of the state"
    yield "folder, readable by its owner only. Server-sent events carry their type in `event:`.\n"
    yield "| method | path | body → answer |\n|---|---|---|"
    for method, path, rest in _routes():
        yield f"| {method} | `{_cell(path)}` | {_cell(rest)} |"
    yield "\n## Types\n"
    yield "Times are Unix seconds unless a name says `_ms`; bytes are bytes. A field with `| null` may be unknown.\n"
    for name, value in vars(control).items():
        if isinstance(value, type) and issubclass(value, Struct) and value.__module__ == control.__name__:
            yield f"### {name}\n"
            if value.__doc__ and not value.__doc__.startswith(name + "("):
                yield " ".join(value.__doc__.split()).replace("``", "`") + "\n"
            yield "| field | type | default |\n|---|---|---|"
            for field, type_, default in _fields(value):
                yield f"| `{field}` | {_cell(type_)} | {_cell(default)} |"
            yield ""


def _routes() -> Iterator[tuple[str, str, str]]:
    for line in (control.__doc__ or "").splitlines():
        found = re.match(r"(GET|POST|PUT|PATCH|DELETE)\s+(/\S+)\s+(.*)", line)
        if found:
            yield found[1], found[2], found[3].strip()


def _fields(struct: type[Struct]) -> Iterator[tuple[str, str, str]]:
    hints = get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        if not field.required:
            value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            default = "" if isinstance(value, Struct) else f"`{msgspec.json.encode(value).decode()}`"
        else:
            default = "required"
        yield field.encode_name, _type_name(hints[field.name]), default


def _type_name(hint: object) -> str:
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    text = re.sub(r"\b(?:localllm\.core\.\w+|typing|types)\.", "", text)
    text = re.sub(
        r"Literal\[([^\]]*)\]", lambda found: found[1].replace("'", '"').replace(", ", " or "), text
    )
    text = re.sub(r"tuple\[([^\]]*), \.\.\.\]", r"list of \1", text)
    for python, word in (("NoneType", "null"), ("None", "null"), ("str", "string"), ("bool", "boolean")):
        text = re.sub(rf"\b{python}\b", word, text)
    return text


# ---------------------------------------------------------------- man page


def _man() -> Iterator[str]:
    yield r".\" Written by docs/generate.py from the code; edit that instead."
    yield f'.TH LOCALLLM 1 "" "localllm {__version__}" "User Commands"'
    yield ".SH NAME\nlocalllm \\- run language models on your own machine"
    yield ".SH SYNOPSIS\n.B localllm\n[\\fIOPTIONS\\fR] [\\fICOMMAND\\fR [\\fIARGS\\fR]]"
    yield f".SH DESCRIPTION\n{_roff(_help(cli))}"
    yield ".PP\nData goes to standard output, everything else to standard error. What reads takes \\fB\\-\\-json\\fR."
    shown = ""
    for title, _, command, context in _commands():
        if title != shown:
            shown = title
            yield f'.SH "{title.upper()}"'
        yield f'.SS "{_roff(_usage(command, context))}"'
        yield _roff(_help(command))
        for names, text in _options(command, context):
            yield f".TP\n.B {_roff(names)}\n{_roff(text)}"
    yield '.SH "OPTIONS BEFORE ANY COMMAND"'
    for names, text in _options(cli, click.Context(cli, info_name="localllm")):
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


def main(arguments: list[str]) -> int:
    stale = []
    for name, content in pages().items():
        path = ROOT / name
        if path.exists() and path.read_text("utf-8") == content:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, "utf-8")
    for name in stale:
        print(f"{'not current' if '--check' in arguments else 'written'}: {name}")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
