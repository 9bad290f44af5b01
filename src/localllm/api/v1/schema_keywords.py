"""JSON Schema's keywords, sorted by what becomes of them on the way to a grammar.

A keyword in none of these tables is an annotation, as JSON Schema has it, and is left out of the copy.
"""

from __future__ import annotations

ANY_TYPE = ("object", "array", "string", "number", "boolean", "null")
TYPES = frozenset(ANY_TYPE) | {"integer"}

NAMED_SCHEMAS = frozenset({"properties", "$defs", "definitions"})
SCHEMA_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
UNIONS = frozenset({"anyOf", "oneOf", "allOf", "$ref"})
BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
REPEATS = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
COUNTS = frozenset({"minContains", "maxContains", "minProperties", "maxProperties"})

# One of these tells the converter what to build; a schema without any is given a type.
STRUCTURE = UNIONS | {"type", "const", "enum", "properties", "additionalProperties", "items", "prefixItems"}

# No grammar expresses these; the finished answer is checked against them.
CHECKED_AFTER = COUNTS | {"not", "if", "then", "else", "contains", "propertyNames", "uniqueItems"}
CHECKED_AFTER |= {"multipleOf", "dependentRequired", "dependentSchemas", "additionalItems"}

# Neither expressed nor checked here, so a request that has one is refused.
REFUSED = frozenset({"patternProperties", "unevaluatedProperties", "unevaluatedItems", "dependencies"})
REFUSED |= {"$dynamicRef", "$recursiveRef"}

# The formats that the converter knows; some others are checked at the end, the rest are annotations.
GRAMMAR_FORMATS = frozenset({"date", "time", "date-time"} | {f"uuid{version}" for version in ("", *"12345")})
