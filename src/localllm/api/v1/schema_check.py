"""Checks a finished answer against the JSON Schema it was asked to follow.

Only used where the grammar could not hold the whole schema (``structured.prepare``). Covers the keywords of draft
2020-12 but for patterns, which the grammar always holds or the request is refused: a client's regular expression is
never run here, since some take for ever. The number of steps is bounded.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping

from localllm.api.v1.schema_parts import has_pattern, resolve

_MAX_STEPS = 200_000
_MAX_DEPTH = 200

_Schema = Mapping[str, object]


def violation(value: object, schema: Mapping[str, object]) -> str | None:
    """Why ``value`` does not follow ``schema`` (the first reason found, with its place), or None if it does."""
    try:
        return next(_Check(schema).problems(value, schema, "$", 0), None)
    except RecursionError:
        return "$ is nested too deep to check"


class _Check:
    def __init__(self, root: _Schema) -> None:
        self.root = root
        self.steps = 0

    def problems(self, value: object, schema: object, at: str, depth: int) -> Iterator[str]:
        self.steps += 1
        if self.steps > _MAX_STEPS or depth > _MAX_DEPTH:
            yield f"{at} is too complex to check"
            return
        if schema is False:
            yield f"{at} must not be there"
        if not isinstance(schema, Mapping):
            return
        yield from _general(value, schema, at)
        yield from self._combined(value, schema, at, depth)
        if isinstance(value, str):
            yield from _text(value, schema, at)
        elif isinstance(value, list):
            yield from self._array(value, schema, at, depth)
        elif isinstance(value, dict):
            yield from self._object(value, schema, at, depth)
        elif _is_number(value):
            yield from _number(value, schema, at)

    def _fits(self, value: object, schema: object, depth: int) -> bool:
        return next(self.problems(value, schema, "", depth + 1), None) is None

    def _combined(self, value: object, schema: _Schema, at: str, depth: int) -> Iterator[str]:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield from self.problems(value, resolve(self.root, reference), at, depth + 1)
        for part in _list(schema, "allOf"):
            yield from self.problems(value, part, at, depth + 1)
        if "anyOf" in schema and not any(self._fits(value, part, depth) for part in _list(schema, "anyOf")):
            yield f"{at} fits none of anyOf"
        if "oneOf" in schema:
            fitting = sum(self._fits(value, part, depth) for part in _list(schema, "oneOf"))
            # branches that differ only by their patterns, which are not run here, may all seem to fit
            if fitting == 0 or (fitting > 1 and not has_pattern(schema["oneOf"])):
                yield f"{at} fits {fitting} of oneOf instead of one"
        if "not" in schema and self._fits(value, schema["not"], depth):
            yield f"{at} fits what it must not"
        if "if" in schema:
            branch = "then" if self._fits(value, schema["if"], depth) else "else"
            yield from self.problems(value, schema.get(branch, True), at, depth + 1)

    def _array(self, value: list[object], schema: _Schema, at: str, depth: int) -> Iterator[str]:
        yield from _size(len(value), schema, "minItems", "maxItems", f"{at} items")
        first = _list(schema, "prefixItems")
        items = schema.get("items", True)
        if isinstance(items, list):
            first, items = items, schema.get("additionalItems", True)
        for index, item in enumerate(value):
            part = first[index] if index < len(first) else items
            yield from self.problems(item, part, f"{at}[{index}]", depth + 1)
        if schema.get("uniqueItems") is True and len({_canonical(item) for item in value}) < len(value):
            yield f"{at} has an item twice"
        if "contains" in schema:
            found = sum(self._fits(item, schema["contains"], depth) for item in value)
            limits = {"min": schema.get("minContains", 1), "max": schema.get("maxContains")}
            yield from _size(found, limits, "min", "max", f"{at} items that 'contains' describes")

    def _object(self, value: dict[str, object], schema: _Schema, at: str, depth: int) -> Iterator[str]:
        yield from _size(len(value), schema, "minProperties", "maxProperties", f"{at} properties")
        for name in _list(schema, "required"):
            if name not in value:
                yield f"{at} lacks {name!r}"
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        rest = schema.get("additionalProperties", True)
        for name, item in value.items():
            yield from self.problems(item, known.get(name, rest), f"{at}.{name}", depth + 1)
            if "propertyNames" in schema:
                yield from self.problems(name, schema["propertyNames"], f"{at} name {name!r}", depth + 1)
        yield from self._dependent(value, schema, at, depth)

    def _dependent(self, value: dict[str, object], schema: _Schema, at: str, depth: int) -> Iterator[str]:
        needed = schema.get("dependentRequired")
        for name, others in needed.items() if isinstance(needed, Mapping) else ():
            for other in others if name in value and isinstance(others, list) else ():
                if other not in value:
                    yield f"{at} has {name!r} but lacks {other!r}"
        parts = schema.get("dependentSchemas")
        for name, part in parts.items() if isinstance(parts, Mapping) else ():
            if name in value:
                yield from self.problems(value, part, at, depth + 1)


def _general(value: object, schema: _Schema, at: str) -> Iterator[str]:
    types = schema.get("type")
    names = types if isinstance(types, list) else [types] if types is not None else []
    if names and not any(_has_type(value, name) for name in names):
        yield f"{at} is not of type {' or '.join(map(str, names))}"
    if "const" in schema and _canonical(value) != _canonical(schema["const"]):
        yield f"{at} is not the constant asked for"
    if "enum" in schema and _canonical(value) not in {_canonical(each) for each in _list(schema, "enum")}:
        yield f"{at} is none of the values asked for"


def _text(value: str, schema: _Schema, at: str) -> Iterator[str]:
    yield from _size(len(value), schema, "minLength", "maxLength", f"{at} characters")
    check = _FORMATS.get(str(schema.get("format")))
    if check is not None and not check(value):
        yield f"{at} is not a valid {schema['format']}"


def _number(value: object, schema: _Schema, at: str) -> Iterator[str]:
    assert isinstance(value, int | float)
    compare: tuple[tuple[str, Callable[[float, float], bool]], ...] = (
        ("minimum", lambda have, limit: have >= limit),
        ("maximum", lambda have, limit: have <= limit),
        ("exclusiveMinimum", lambda have, limit: have > limit),
        ("exclusiveMaximum", lambda have, limit: have < limit),
    )
    for key, holds in compare:
        limit = schema.get(key)
        if isinstance(limit, int | float) and not holds(value, limit):
            yield f"{at} breaks {key} {limit}"
    step = schema.get("multipleOf")
    if isinstance(step, int | float) and step > 0:
        quotient = value / step
        if abs(quotient - round(quotient)) > 1e-9:
            yield f"{at} is not a multiple of {step}"


def _size(count: int, schema: Mapping[str, object], low: str, high: str, what: str) -> Iterator[str]:
    least, most = schema.get(low), schema.get(high)
    if isinstance(least, int) and count < least:
        yield f"{what}: {count} is fewer than {least}"
    if isinstance(most, int) and count > most:
        yield f"{what}: {count} is more than {most}"


def _has_type(value: object, name: object) -> bool:
    match name:
        case "integer":
            return _is_number(value) and float(str(value)).is_integer()
        case "number":
            return _is_number(value)
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case _:
            return value is None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _canonical(value: object) -> str:
    """Equal for values that JSON calls equal: 1 and 1.0 are, 1 and true are not."""
    if _is_number(value):
        assert isinstance(value, int | float)
        return repr(int(value)) if float(value).is_integer() else repr(value)
    if isinstance(value, list):
        return f"[{','.join(map(_canonical, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{key!r}:{_canonical(value[key])}' for key in sorted(value))}}}"
    return repr(value)


def _list(schema: Mapping[str, object], key: str) -> list[object]:
    value = schema.get(key)
    return value if isinstance(value, list) else []


def _is_address(value: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(value).version == version
    except ValueError:
        return False


def _is_email(value: str) -> bool:
    local, at, domain = value.rpartition("@")
    return bool(local and at and domain) and not any(character.isspace() for character in value)


def _is_uri(value: str) -> bool:
    scheme, colon, rest = value.partition(":")
    return bool(colon and rest) and scheme[:1].isalpha() and not any(c.isspace() for c in value)


def _is_hostname(value: str) -> bool:
    labels = value.rstrip(".").split(".")
    return len(value) <= 253 and all(
        0 < len(label) <= 63 and label.strip("-") == label and label.replace("-", "").isalnum()
        for label in labels
    )


# Formats that are not listed are annotations, as JSON Schema has it.
_FORMATS: Mapping[str, Callable[[str], bool]] = {
    "email": _is_email,
    "uri": _is_uri,
    "hostname": _is_hostname,
    "ipv4": lambda value: _is_address(value, 4),
    "ipv6": lambda value: _is_address(value, 6),
}
