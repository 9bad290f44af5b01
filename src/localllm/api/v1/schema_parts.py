"""Looking into a JSON Schema: what a reference points to, and whether a pattern lies somewhere inside."""

from __future__ import annotations

from collections.abc import Mapping


def resolve(root: object, reference: str) -> object | None:
    """What a local reference (``#``, ``#/a/b``) points to, or None."""
    if not reference.startswith("#"):
        return None
    target = root
    for step in filter(None, reference[1:].split("/")):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and name in target:
            target = target[name]
        elif isinstance(target, list) and name.isdigit() and int(name) < len(target):
            target = target[int(name)]
        else:
            return None
    return target


def has_pattern(schema: object) -> bool:
    """Whether the schema holds a pattern, references not followed."""
    if isinstance(schema, Mapping):
        return "pattern" in schema or any(has_pattern(part) for part in schema.values())
    return isinstance(schema, list) and any(has_pattern(part) for part in schema)
