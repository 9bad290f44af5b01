"""``localllm config``: read and change ``config.toml``, which works whether or not the service runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, paint, pairs, table
from localllm.cli.session import json_option

if TYPE_CHECKING:
    from localllm.core.control import ConfigEntry, ConfigView


@click.group()
def command() -> None:
    """Show and change settings.

    A value typed on the command line beats the environment (LOCALLLM_SECTION_KEY), which beats config.toml, which
    beats the default. Changes made here are written to config.toml; its comments stay.
    """


@command.command()
@click.argument("key", required=False)
@click.option("--changed", is_flag=True, help="Only what is not at its default.")
@json_option
def show(key: str | None, changed: bool, as_json: bool) -> None:
    """Every setting with its value and where that came from; with KEY, all about one (or about a section)."""
    import msgspec

    from localllm.settings.load import load_settings, unknown_key
    from localllm.settings.paths import resolve_paths

    view = load_settings(resolve_paths(), tolerant=True).view()
    entries = tuple(
        entry
        for entry in view.entries
        if (key is None or entry.key == key or entry.key.startswith(key + "."))
        and (not changed or entry.source != "default")
    )
    if key is not None and not entries and not changed:
        raise unknown_key(key, "config show")
    shown = msgspec.structs.replace(view, entries=entries)
    single = len(entries) == 1 and entries[0].key == key
    emit(
        Result("config", shown, lambda: _one(entries[0]) if single else _all(shown)),
        as_json=as_json,
    )
    for problem in view.problems:
        say(f"{paint('Warning:', 'yellow')} {problem}")


@command.command("set")
@click.argument("key")
@click.argument("value")
def set_(key: str, value: str) -> None:
    """Write KEY = VALUE to config.toml. Lists are written with commas: localllm config set server.api_keys K1,K2"""
    _write(key, value)


@command.command()
@click.argument("key")
def unset(key: str) -> None:
    """Take KEY out of config.toml, so that its default counts again."""
    _write(key, None)


@command.command()
def path() -> None:
    """Print where config.toml is (or would be)."""
    from localllm.settings.paths import resolve_paths

    click.echo(resolve_paths().config_file)


def _write(key: str, value: str | None) -> None:
    import os

    from localllm.settings.paths import resolve_paths
    from localllm.settings.schema import all_settings
    from localllm.settings.write import write_setting

    paths = resolve_paths()
    write_setting(paths, key, value)
    setting = all_settings()[key]
    say(f"{key} is {'back at its default' if value is None else 'set'} in {paths.config_file}.")
    if os.environ.get(setting.variable):
        say(f"But {setting.variable} is set in this terminal and beats it.")
    if setting.needs_restart:
        say("A running service reads it when it starts again: localllm restart")


def _all(view: ConfigView) -> Iterator[str]:
    columns = [
        Column("setting"),
        Column("value"),
        Column("from", style=lambda cell: "dim" if cell == "default" else None, spare=1),
    ]
    rows = [(entry.key, _text(entry.value), entry.where or entry.source) for entry in view.entries]
    yield from table(columns, rows)
    yield ""
    yield paint(f"{view.path}; all about one setting: localllm config show KEY", "dim")


def _one(entry: ConfigEntry) -> Iterator[str]:
    from localllm.settings.schema import all_settings

    setting = all_settings()[entry.key]
    yield entry.help + "."
    yield ""
    yield from pairs(
        [
            ("value", _text(entry.value)),
            ("from", entry.where or entry.source),
            ("default", _text(entry.default)),
            ("takes", setting.expectation() + (", or nothing" if setting.optional else "")),
            ("variable", setting.variable),
            (
                "applies",
                "when the service starts again" if entry.needs_restart else "when the app starts again",
            ),
        ]
    )


def _text(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ", ".join(str(part) for part in value) or "empty"
    return str(value)
