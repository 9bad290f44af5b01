"""Read the settings: command line > environment > ``config.toml`` > default, each value with where it came from.

Two ways to meet a mistake. A service must not start on settings it half understood: it gets the error. A verb that
only reads must still work, and the terminal app must come up to show the mistake: ``tolerant`` puts the default in
the place of what is wrong and lists what that was. Nothing here writes (``write.py``), and the file is never touched.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from localllm.core.config import RemoteSettings, Settings
from localllm.core.control import ConfigEntry, ConfigView
from localllm.core.errors import ConfigError, ConfigInvalid, ConfigUnknownKey
from localllm.settings.locate import key_lines
from localllm.settings.paths import Paths
from localllm.settings.schema import REMOTES, Setting, all_settings, assemble, convert, nearest_key, sections

_REMOTE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

MAX_CONFIG_BYTES = 1 << 20
"""A configuration file larger than this is not one."""


@dataclass(frozen=True, kw_only=True)
class LoadedSettings:
    """``entries`` has every setting once, in the order of ``core.config``; ``problems`` is empty unless tolerant."""

    settings: Settings
    entries: tuple[ConfigEntry, ...]
    problems: tuple[ConfigError, ...] = ()
    config_file: Path

    def view(self) -> ConfigView:
        """What the Settings screen and ``config show`` render; secrets are masked."""
        return ConfigView(
            path=str(self.config_file),
            entries=self.entries,
            problems=tuple(
                str(problem) if problem.hint is None else f"{problem} {problem.hint}"
                for problem in self.problems
            ),
        )


@dataclass(frozen=True)
class _Given:
    """A value somebody set, before it is checked. ``typed``: it came with a type (TOML), not as text."""

    key: str
    value: object
    source: str
    where: str
    typed: bool


@dataclass
class _Problems:
    """The funnel of every mistake: raises it, or keeps it when the reader is tolerant."""

    tolerant: bool
    found: list[ConfigError] = field(default_factory=list)

    def add(self, problem: ConfigError) -> None:
        if not self.tolerant:
            raise problem
        self.found.append(problem)


def load_settings(
    paths: Paths,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    tolerant: bool = False,
) -> LoadedSettings:
    """Every setting, checked. ``overrides`` are command-line values by dotted key (None = not given).

    Raises ConfigUnknownKey or ConfigInvalid, naming file and line (or the variable), unless ``tolerant``.
    """
    env = os.environ if env is None else env
    problems = _Problems(tolerant)
    values: dict[str, Any] = {}
    remotes: dict[str, RemoteSettings] = {}
    origin: dict[str, _Given] = {}
    sources = chain(
        _from_file(paths.config_file, problems),
        _from_environment(env, problems),
        _from_command_line(overrides or {}),
    )
    for given in sources:
        section, _, name = given.key.partition(".")
        if section == REMOTES:
            _take_remote(name, given, remotes, problems)
            continue
        setting = all_settings()[given.key]
        try:
            values[given.key] = convert(setting, given.value, typed=given.typed)
        except msgspec.ValidationError:
            problems.add(_invalid(setting, given))
        else:
            origin[given.key] = given
    return LoadedSettings(
        settings=assemble(values, remotes),
        entries=tuple(_entry(setting, values, origin) for setting in all_settings().values()),
        problems=tuple(problems.found),
        config_file=paths.config_file,
    )


def read_config_text(path: Path) -> str | None:
    """The text of ``path``, None when there is no such file.

    Raises ConfigInvalid when it cannot be read, is not a regular file, is not UTF-8 or is larger than 1 MiB.
    """
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise ConfigInvalid(
                f"{path} is not a regular file.", hint="Move it away; localllm expects a TOML file there."
            )
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ConfigInvalid(
                f"{path} is larger than 1 MiB and is not read.", hint="Is it really the configuration?"
            )
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigInvalid(
            f"{path}:{line}: not UTF-8 text.", hint="Save the file as UTF-8. It was left as it is."
        ) from error
    except OSError as error:
        raise ConfigInvalid(
            f"{path} cannot be read: {error.strerror}.", hint="Check its owner and permissions."
        ) from error


def parse_toml(path: Path, text: str) -> dict[str, object]:
    """Raises ConfigInvalid, naming ``path`` and the line, when ``text`` is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_problem(path, str(error)) from error


def unknown_key(key: str, where: str) -> ConfigUnknownKey:
    """The error for a key nobody knows, with the nearest one (or section) that exists."""
    near = nearest_key(key)
    return ConfigUnknownKey(
        f"{where}: unknown setting {key!r}.",
        hint=f"Did you mean {near}?" if near else "See every setting with: localllm config show",
        details={"key": key, "near": near},
    )


def _from_file(path: Path, problems: _Problems) -> Iterator[_Given]:
    try:
        text = read_config_text(path) or ""
        tree = parse_toml(path, text)
    except ConfigInvalid as problem:
        problems.add(problem)
        return
    lines = key_lines(text)
    for key, value in _leaves(tree):
        where = f"{path}:{_line_of(key, lines)}"
        if key in all_settings() or key.startswith(f"{REMOTES}."):
            yield _Given(key, value, "file", where, typed=True)
        elif key in sections():
            problems.add(
                ConfigInvalid(
                    f"{where}: {key!r} is a section, not a value.",
                    hint=f"Write [{key}] on a line of its own.",
                )
            )
        else:
            problems.add(unknown_key(key, where))


def _take_remote(name: str, given: _Given, remotes: dict[str, RemoteSettings], problems: _Problems) -> None:
    try:
        remote = msgspec.convert(given.value, RemoteSettings)
    except msgspec.ValidationError as error:
        problems.add(
            ConfigInvalid(
                f"{given.where}: {given.key} is not a remote: {error}.",
                hint=f'Write at least [{given.key}] and base_url = "https://…/v1".',
            )
        )
        return
    if not _REMOTE_NAME.fullmatch(name) or not remote.base_url.startswith(("http://", "https://")):
        problems.add(
            ConfigInvalid(
                f"{given.where}: {given.key} cannot be used.",
                hint="A remote's name has letters, digits, - and _, and its base_url begins with http:// or https://.",
            )
        )
        return
    remotes[name] = remote


def _leaves(tree: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Dotted key and value of everything set; only the known sections are walked into, one level deep."""
    for section, fields in tree.items():
        if section in sections() and isinstance(fields, dict):
            for name, value in fields.items():
                yield f"{section}.{name}", value
        else:
            yield section, fields


def _line_of(key: str, lines: Mapping[str, int]) -> int:
    """The line of ``key``, else of the nearest thing that holds it (an inline table) or lies in it (a dotted key)."""
    holder = key
    while holder:
        if holder in lines:
            return lines[holder]
        inside = [line for path, line in lines.items() if path.startswith(holder + ".")]
        if inside:
            return min(inside)
        holder = holder.rpartition(".")[0]
    return 1


def _syntax_problem(path: Path, reason: str) -> ConfigInvalid:
    """tomllib ends its message with ``(at line N, column M)``: put that where editors can follow it."""
    place = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", reason)
    words = reason[: place.start()] if place else reason
    where = f"{path}:{place[1]}" if place and place[1] else str(path)
    return ConfigInvalid(
        f"{where}: not valid TOML: {words[:1].lower() + words[1:]}.",
        hint="The file was left as it is; correct that line, or move the file away to start from the defaults.",
    )


def _from_environment(env: Mapping[str, str], problems: _Problems) -> Iterator[_Given]:
    by_variable = {setting.variable: setting for setting in all_settings().values()}
    prefixes = tuple(f"LOCALLLM_{section.upper()}_" for section in sections())
    for variable, text in env.items():
        if setting := by_variable.get(variable):
            if text.strip():
                yield _Given(setting.key, text, "environment", variable, typed=False)
        elif variable.startswith(prefixes):
            section, _, name = variable.removeprefix("LOCALLLM_").lower().partition("_")
            problems.add(_unknown_variable(variable, f"{section}.{name}"))


def _unknown_variable(variable: str, key: str) -> ConfigUnknownKey:
    near = nearest_key(key)
    return ConfigUnknownKey(
        f"The environment sets {variable}, which is no setting.",
        hint=f"Did you mean {all_settings()[near].variable}?"
        if near
        else "Unset it, or see: localllm config show",
        details={"key": key, "near": near},
    )


def _from_command_line(overrides: Mapping[str, object]) -> Iterator[_Given]:
    for key, value in overrides.items():
        if key not in all_settings():
            raise unknown_key(key, "command line")
        if value is not None:
            yield _Given(key, value, "command line", "command line", typed=False)


def _invalid(setting: Setting, given: _Given) -> ConfigInvalid:
    shown = "that value" if setting.secret else repr(given.value)
    return ConfigInvalid(
        f"{given.where}: {setting.key} must be {setting.expectation()}, not {shown}.",
        hint=f"{setting.help}. The default is {default_text(setting)}.",
        details={"key": setting.key},
    )


def default_text(setting: Setting) -> str:
    """The default as a person writes it in the file."""
    if setting.default is None:
        return "unset"
    if setting.default == ():
        return "empty"
    if isinstance(setting.default, bool):
        return str(setting.default).lower()
    return str(setting.default)


def _entry(setting: Setting, values: Mapping[str, Any], origin: Mapping[str, _Given]) -> ConfigEntry:
    given = origin.get(setting.key)
    value = values.get(setting.key, setting.default)
    return ConfigEntry(
        key=setting.key,
        value=_masked(value) if setting.secret else value,
        default=setting.default,
        source="default" if given is None else given.source,  # type: ignore[arg-type]
        where=None if given is None else given.where,
        type=setting.type,
        choices=setting.choices,
        help=setting.help,
        needs_restart=setting.needs_restart,
        secret=setting.secret,
    )


def _masked(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Enough of a key to tell it from another, never enough to use it."""
    return tuple("…" + key[-4:] if len(key) >= 16 else "…" for key in keys)
