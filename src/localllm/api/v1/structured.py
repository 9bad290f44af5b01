"""JSON Schemas a client asks for → schemas that a grammar can hold, and what must be checked afterwards.

llama.cpp turns a schema into a grammar, but ignores the keywords that a grammar cannot express, and refuses schemas
as plain as ``{"title": "anything"}``. So a request's schema is simplified on a copy: what cannot be expressed is taken
out and remembered, and the finished answer is checked against the original (``schema_check``). What could be neither
enforced nor checked is a 400: an answer is never unconstrained in silence.

Which keywords the grammar holds: llama.cpp, common/json-schema-to-grammar.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from localllm.api.v1 import schema_keywords as words
from localllm.api.v1.patterns import PatternUnsupported, grammar_pattern
from localllm.api.v1.schema_parts import has_pattern, resolve
from localllm.core.errors import BadRequest

MAX_DEPTH = 64
MAX_REPEATS = 1000  # a grammar unrolls its repeats; more than this only slows the sampler down
MAX_ALTERNATIVES = 256  # each is weighed at every token: llama.cpp took 3 s a token for 1,000 of them
MAX_NODES = 20_000


class Prepared(Struct, frozen=True):
    """``schema`` is for the grammar. ``check_after``: the keywords it may not hold, as paths; empty = it holds all."""

    schema: dict[str, object]
    check_after: tuple[str, ...] = ()


def prepare(schema: dict[str, object], param: str) -> Prepared:
    """Simplify a response schema for the grammar.

    Raises:
        BadRequest: malformed, too deep, too large, or with a keyword that can be neither enforced nor checked.
    """
    walk = _Walk(schema, param, strict=True)
    simplified = walk.schema(schema, "#", 0)
    return Prepared(simplified, tuple(walk.lost))


def loosened(schema: dict[str, object], param: str = "tools") -> dict[str, object]:
    """A tool's parameters without what no grammar takes.

    Arguments are the model's proposal, which the client checks anyway; so what cannot be enforced is let go instead
    of refused.
    """
    return _Walk(schema, param, strict=False).schema(schema, "#", 0)


class _Walk:
    """One pass over a schema; ``lost`` collects what the copy no longer says."""

    def __init__(self, root: dict[str, object], param: str, *, strict: bool) -> None:
        self.root = root
        self.param = param
        self.strict = strict
        self.lost: list[str] = []
        self.judging = False
        self.nodes = 0

    def schema(self, schema: object, where: str, depth: int) -> dict[str, object]:
        self._count(depth, where)
        if schema is True:
            return {"type": list(words.ANY_TYPE)}
        if isinstance(schema, dict) and "anyOf" in schema and "oneOf" in schema:
            raise self._bad(f"{where} has both anyOf and oneOf")
        if not isinstance(schema, dict):
            raise self._bad(f"{where} is not a schema")
        kept: dict[str, object] = {}
        for key, value in schema.items():
            self._keyword(kept, key, value, f"{where}/{key}", depth)
        self._siblings(schema, kept, where)
        if not words.STRUCTURE & kept.keys():
            kept["type"] = _implied_type(kept)
        return kept

    def _keyword(self, kept: dict[str, object], key: str, value: object, where: str, depth: int) -> None:
        if key in words.CHECKED_AFTER:
            self._judged(key, value, where, depth)
            self.lost.append(where)
        elif key in words.REFUSED:
            self._refuse(f"{where} cannot be enforced here")
        elif key in words.NAMED_SCHEMAS:
            kept[key] = self._named(value, where, depth)
        elif key in words.SCHEMA_LISTS:
            self._branches(kept, key, self._list(value, where, depth), where)
        elif key == "items" and isinstance(value, list):
            kept["prefixItems"] = self._list(value, where, depth)
        elif key == "items" or (key == "additionalProperties" and not isinstance(value, bool)):
            kept[key] = self.schema(value, where, depth + 1)
        elif key == "$ref":
            kept[key] = self._reference(value, where)
        elif key == "pattern":
            self._pattern(kept, value, where)
        else:
            self._plain(kept, key, value, where)

    def _judged(self, key: str, value: object, where: str, depth: int) -> None:
        """A keyword that is checked at the end: it must be sound, and hold no pattern, since none is run here."""
        outside, self.judging = self.judging, True
        if key in words.COUNTS:
            self._whole_number(value, where)
        elif key == "multipleOf":
            if self._number(value, where) <= 0:
                raise self._bad(f"{where} must be above 0")
        elif key == "dependentRequired":
            if not isinstance(value, dict) or not all(map(_is_names, value.values())):
                raise self._bad(f"{where} must map names to lists of names")
        elif key == "dependentSchemas":
            self._named(value, where, depth)
        elif key == "uniqueItems":
            if not isinstance(value, bool):
                raise self._bad(f"{where} must be true or false")
        elif not isinstance(value, bool):
            self.schema(value, where, depth + 1)
        self.judging = outside

    def _plain(self, kept: dict[str, object], key: str, value: object, where: str) -> None:
        """Keywords without a schema inside; those that are unknown are annotations and go."""
        if key in words.REPEATS:
            self._keep(kept, key, value, where, if_=self._whole_number(value, where) <= MAX_REPEATS)
        elif key in words.BOUNDS:
            self._number(value, where)
            kept[key] = value
        elif key == "enum":
            if not isinstance(value, list) or not value:
                raise self._bad(f"{where} must be a list with at least one value")
            self._keep(kept, key, value, where, if_=len(value) <= MAX_ALTERNATIVES)
        elif key == "format":
            if not isinstance(value, str):
                raise self._bad(f"{where} must be text")
            self._keep(kept, key, value, where, if_=value in words.GRAMMAR_FORMATS)
        elif key == "required":
            if not _is_names(value):
                raise self._bad(f"{where} must be a list of names")
            kept[key] = value
        elif key == "type":
            kept[key] = self._type(value, where)
        elif key in words.STRUCTURE:
            kept[key] = value

    def _keep(self, kept: dict[str, object], key: str, value: object, where: str, *, if_: bool) -> None:
        if if_:
            kept[key] = value
        else:
            self.lost.append(where)

    def _whole_number(self, value: object, where: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._bad(f"{where} must be a whole number from 0")
        return value

    def _number(self, value: object, where: str) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._bad(f"{where} must be a number")
        return value

    def _siblings(self, schema: Mapping[str, object], kept: dict[str, object], where: str) -> None:
        """Keywords that the converter ignores because of the ones beside them."""
        if words.UNIONS & kept.keys() and len((words.STRUCTURE | {"required", "pattern"}) & kept.keys()) > 1:
            self.lost.append(f"{where} (keywords beside anyOf, oneOf, allOf or $ref)")
        if schema.get("type") != "integer":  # some grammars hold bounds of fractions too, so they stay
            self.lost.extend(f"{where}/{key}" for key in sorted(words.BOUNDS & kept.keys()))
        if ("pattern" in kept or "format" in kept) and {"minLength", "maxLength"} & kept.keys():
            self.lost.append(f"{where} (length beside pattern or format)")
        if "prefixItems" in kept and {"items", "minItems", "maxItems"} & kept.keys():
            self.lost.append(f"{where} (items beside prefixItems)")

    def _branches(self, kept: dict[str, object], key: str, branches: list[object], where: str) -> None:
        """A grammar takes any branch; that no second one of oneOf fits as well can only be checked."""
        if key in ("oneOf", "allOf") or len(branches) > MAX_ALTERNATIVES:
            self.lost.append(where)
        if len(branches) <= MAX_ALTERNATIVES:
            kept["anyOf" if key == "oneOf" else key] = branches

    def _named(self, value: object, where: str, depth: int) -> dict[str, object]:
        if not isinstance(value, dict):
            raise self._bad(f"{where} must be an object")
        return {
            name: self.schema(entry, f"{where}/{name}", depth + 1)
            for name, entry in value.items()
            if entry is not False
        }

    def _list(self, value: object, where: str, depth: int) -> list[object]:
        if not isinstance(value, list) or not value:
            raise self._bad(f"{where} must be a list with at least one schema")
        return [self.schema(entry, f"{where}/{index}", depth + 1) for index, entry in enumerate(value)]

    def _reference(self, value: object, where: str) -> object:
        """Only references inside the schema: nothing is fetched. A chain of references must end somewhere."""
        seen: set[str] = set()
        target: object = {"$ref": value}
        while isinstance(target, dict) and "$ref" in target:
            reference = target["$ref"]
            if not isinstance(reference, str) or reference in seen:
                raise self._bad(f"{where} refers to itself, or not to a name")
            seen.add(reference)
            target = resolve(self.root, reference)
        if target is None:
            raise self._bad(f"{where} must point into this schema, as #/$defs/NAME does")
        if self.judging and has_pattern(target):
            self._refuse(f"{where} leads to a pattern, which can be neither enforced nor checked there")
        return value

    def _pattern(self, kept: dict[str, object], value: object, where: str) -> None:
        if not isinstance(value, str):
            raise self._bad(f"{where} must be text")
        if self.judging:
            self._refuse(f"{where} can be neither enforced nor checked there")
            return
        try:
            kept["pattern"] = grammar_pattern(value)
        except PatternUnsupported as error:
            self._refuse(f"{where} {error}")

    def _type(self, value: object, where: str) -> object:
        names = value if isinstance(value, list) else [value]
        if not names or not all(isinstance(name, str) and name in words.TYPES for name in names):
            raise self._bad(f"{where} is not a JSON type")
        return value

    def _count(self, depth: int, where: str) -> None:
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise self._bad(f"it is nested deeper than {MAX_DEPTH} levels")
        if self.nodes > MAX_NODES:
            raise self._bad(f"it has more than {MAX_NODES} parts")

    def _refuse(self, reason: str) -> None:
        if self.strict:
            raise self._bad(reason)
        self.lost.append(reason)

    def _bad(self, reason: str) -> BadRequest:
        return BadRequest(f"Invalid schema: {reason}.", param=self.param)


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _implied_type(kept: Mapping[str, object]) -> object:
    """The type that a schema without one means: the converter refuses a schema that has none."""
    if {"minLength", "maxLength", "pattern", "format"} & kept.keys():
        return "string"
    if {"minItems", "maxItems"} & kept.keys():
        return "array"
    return "object" if "required" in kept else list(words.ANY_TYPE)
