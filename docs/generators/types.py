"""Structs as rows of a table: field, type in words, default."""

from __future__ import annotations

import types
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

_WORDS: dict[Any, str] = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    object: "anything",
    Any: "anything",
    types.NoneType: "null",
}


def fields(struct: type[Struct]) -> Iterator[tuple[str, str, str]]:
    """(name on the wire, type in words, default in JSON or ``required``) of each field."""
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        if field.required:
            default = "required"
        else:
            value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            default = "" if isinstance(value, Struct) else f"`{msgspec.json.encode(value).decode()}`"
        yield field.encode_name, words(hints[field.name]), default


def words(hint: Any) -> str:
    """A type as a person says it: ``integer 0…65535 or null``, ``list of Task``."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        metas = [part for part in parts[1:] if isinstance(part, Meta)]
        return words(parts[0]) + "".join(_range(meta) for meta in metas)
    if origin in (Union, types.UnionType):
        return " or ".join(words(part) for part in parts)
    if origin is Literal:
        return " or ".join(f"`{msgspec.json.encode(part).decode()}`" for part in parts)
    if origin in (list, tuple):
        return f"list of {words(parts[0])}"
    if origin is dict:
        return f"object of {words(parts[1])}" if parts[1] not in (object, Any) else "object"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return " or ".join(f"`{msgspec.json.encode(member).decode()}`" for member in hint)
    return _WORDS.get(hint) or str(hint.__name__)


def structs_in(hint: Any) -> Iterator[type[Struct]]:
    """Every struct that a type names, at any depth inside of it."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        yield hint
    for part in get_args(hint):
        yield from structs_in(part)


def _range(meta: Meta) -> str:
    if meta.ge is not None and meta.le is not None and abs(meta.ge) < 1e6:
        return f" {meta.ge:g}…{meta.le:g}" if abs(meta.le) < 1e6 else f" from {meta.ge:g}"
    return f" of at most {meta.max_length}" if meta.max_length is not None else ""
