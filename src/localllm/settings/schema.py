"""The settings as a flat table: what each dotted key takes, means and defaults to, read off ``core.config``.

The tree in ``core.config`` is the one definition; this module only walks it, so that the loader, the writer, the
Settings screen and the reference docs agree without a second list.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from localllm.core.config import RemoteSettings, Settings
from localllm.core.units import parse_bytes

REMOTES = "remotes"
"""The section of tables, each a ``core.config.RemoteSettings``; only a file can have it."""

SECRET_KEYS = frozenset({"server.api_keys"})
"""Never printed in full, by anyone."""

_LIVE_SECTIONS = frozenset({"ui"})
"""Sections that the terminal app reads again at each start; the service reads the others once, when it starts."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One leaf of the settings tree. ``annotation`` is what ``msgspec.convert`` checks a value against."""

    key: str
    annotation: Any
    default: Any
    type: str
    choices: tuple[str, ...]
    minimum: float | None
    maximum: float | None
    optional: bool
    help: str

    @property
    def section(self) -> str:
        return self.key.partition(".")[0]

    @property
    def name(self) -> str:
        return self.key.partition(".")[2]

    @property
    def variable(self) -> str:
        """The environment variable that sets it: ``server.port`` → ``LOCALLLM_SERVER_PORT``."""
        return "LOCALLLM_" + self.key.replace(".", "_").upper()

    @property
    def secret(self) -> bool:
        return self.key in SECRET_KEYS

    @property
    def needs_restart(self) -> bool:
        return self.section not in _LIVE_SECTIONS

    def expectation(self) -> str:
        """What a value must be, for an error message: ``a whole number from 0 to 65535``."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = {
            "integer": "a whole number",
            "number": "a number",
            "boolean": "true or false",
            "list": "a list of texts",
            "string": "a text",
        }[self.type]
        if self.key.endswith("_bytes"):
            return "an amount of bytes, such as 512MiB"
        if self.minimum is not None and self.maximum is not None:
            words += f" from {self.minimum:g} to {_plain(self.maximum)}"
        return words


@cache
def all_settings() -> Mapping[str, Setting]:
    """Every setting by its dotted key, in the order of ``core.config``."""
    found: dict[str, Setting] = {}
    for section, section_type in _flat_sections().items():
        defaults = section_type()
        for name, annotation in get_type_hints(section_type, include_extras=True).items():
            key = f"{section}.{name}"
            found[key] = _setting(key, annotation, getattr(defaults, name))
    return types.MappingProxyType(found)


def sections() -> tuple[str, ...]:
    return tuple(get_type_hints(Settings))


def _flat_sections() -> dict[str, type[Any]]:
    """Those whose keys are known; the tables of ``remotes`` are named by their user."""
    return {name: kind for name, kind in get_type_hints(Settings).items() if name != REMOTES}


def nearest_key(key: str) -> str | None:
    """The setting or section that ``key`` may have meant: by its last part (its own section first), then by all of it."""
    if "." not in key:
        close = difflib.get_close_matches(key, sections(), n=1, cutoff=0.7)
        if close:
            return close[0]
    section, _, name = key.rpartition(".")
    named: dict[str, str] = {}
    for setting in sorted(all_settings().values(), key=lambda setting: setting.section != section):
        named.setdefault(setting.name, setting.key)
    close = difflib.get_close_matches(name, named, n=1, cutoff=0.7)
    if close:
        return named[close[0]]
    close = difflib.get_close_matches(key, all_settings(), n=1, cutoff=0.6)
    return close[0] if close else None


def convert(setting: Setting, value: object, *, typed: bool) -> Any:
    """``value`` as the setting's type; texts are parsed unless ``typed`` (a TOML value has its type already).

    Raises msgspec.ValidationError.
    """
    if not typed and isinstance(value, str):
        value = _parse_text(setting, value)
    return msgspec.convert(value, setting.annotation, strict=typed)


def assemble(values: Mapping[str, Any], remotes: Mapping[str, RemoteSettings] | None = None) -> Settings:
    """The typed tree from checked values by dotted key; what is not named keeps its default."""
    tree: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        tree.setdefault(section, {})[name] = value
    types_by_section = _flat_sections()
    flat = {section: types_by_section[section](**fields) for section, fields in tree.items()}
    return Settings(**flat, remotes=dict(remotes or {}))


def _parse_text(setting: Setting, text: str) -> object:
    if setting.type == "list":
        return [part.strip() for part in text.split(",") if part.strip()]
    if setting.type == "boolean":
        return {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(text.lower(), text)
    if setting.key.endswith("_bytes"):
        try:
            return parse_bytes(text)
        except ValueError:
            return text
    return text


def _setting(key: str, annotation: Any, default: object) -> Setting:
    kind, choices, metas, optional = _unwrap(annotation)
    help_text = next((meta.description for meta in metas if meta.description), "")
    return Setting(
        key=key,
        annotation=annotation,
        default=default,
        type=kind,
        choices=choices,
        minimum=next((meta.ge for meta in metas if meta.ge is not None), None),
        maximum=next((meta.le for meta in metas if meta.le is not None), None),
        optional=optional,
        help=help_text,
    )


def _unwrap(annotation: Any) -> tuple[str, tuple[str, ...], list[Meta], bool]:
    """(type word, choices, metadata outermost first, may be unset) of one annotation in ``core.config``."""
    metas: list[Meta] = []
    optional = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *extra = get_args(annotation)
            metas += [meta for meta in extra if isinstance(meta, Meta)]
        elif origin in (Union, types.UnionType):
            (annotation,) = (part for part in get_args(annotation) if part is not types.NoneType)
            optional = True
        elif origin is Literal:
            return "string", tuple(str(choice) for choice in get_args(annotation)), metas, optional
        elif origin is tuple:
            return "list", (), metas, optional
        else:
            words = {int: "integer", float: "number", bool: "boolean", str: "string"}
            return words[annotation], (), metas, optional


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:g}"
