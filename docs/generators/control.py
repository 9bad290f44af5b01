"""The page of the control API: routes from the docstring of ``core.control``, types from its structs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from generators.markdown import HEAD, cell
from generators.types import fields
from localllm.core import control, gateway


def page() -> Iterator[str]:
    yield HEAD
    yield "# The control API\n"
    yield "What the terminal app and the command line say to the service: HTTP and JSON under `/localllm/`. Every route but"
    yield "`/localllm/identity` needs the admin key (`Authorization: Bearer …`), which lies in `admin.key` of the state"
    yield "folder, readable by its owner only. Server-sent events carry their type in `event:`.\n"
    yield "| method | path | body → answer |\n|---|---|---|"
    for method, path, rest in _routes():
        yield f"| {method} | `{cell(path)}` | {cell(rest)} |"
    yield "\n## Types\n"
    yield "Times are Unix seconds unless a name says `_ms`; bytes are bytes. Null means that it is unknown.\n"
    for module in (control, gateway):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Struct) and value.__module__ == module.__name__:
                yield from _struct(name, value)


def _struct(name: str, struct: type[Struct]) -> Iterator[str]:
    yield f"### {name}\n"
    if struct.__doc__ and not struct.__doc__.startswith(name + "("):
        yield " ".join(struct.__doc__.split()).replace("``", "`") + "\n"
    yield "| field | type | default |\n|---|---|---|"
    for field, type_, default in fields(struct):
        yield f"| `{field}` | {cell(type_)} | {cell(default)} |"
    yield ""


def _routes() -> Iterator[tuple[str, str, str]]:
    for line in (control.__doc__ or "").splitlines():
        found = re.match(r"(GET|POST|PUT|PATCH|DELETE)\s+(/\S+)\s+(.*)", line)
        if found:
            yield found[1], found[2], found[3].strip()
