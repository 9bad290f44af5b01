"""The one boundary between text that others wrote and this terminal.

Model output, file names, GGUF metadata and error messages may carry escape sequences that move the cursor, rename
the window or answer back as if typed, and bidirectional overrides that make text read differently from what it is.
Everything the app gets from the service passes through `clean` once, when it arrives; no widget does it again, and
nothing else in the app may. Markup is not this module's concern: text reaches widgets as `Content`, never as markup.
"""

from __future__ import annotations

import re
from typing import TypeVar, cast

import msgspec

T = TypeVar("T")

# C0 without \t and \n, DEL, C1; the bidirectional embeddings, overrides and isolates; line and paragraph
# separators, which terminals treat as they like.
_STRIPPED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """``text`` without anything that a terminal would obey; half characters become U+FFFD.

    A carriage return before a newline goes with the other controls, so Windows line ends come out as newlines.
    """
    if text.isascii() and text.isprintable():
        return text
    return _SURROGATES.sub("\ufffd", _STRIPPED.sub("", text))


def clean(value: T) -> T:
    """The same value with every string inside it cleaned: structs, tuples, lists and dictionaries, to any depth.

    What needs no cleaning is returned as the same object, so an unchanged state costs no copies.
    """
    return cast("T", _clean(value))


def _clean(value: object) -> object:
    if isinstance(value, str):
        # an enum member is a str too, and must stay the member it is
        return clean_text(value) if type(value) is str else value
    if isinstance(value, msgspec.Struct):
        changes = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            after = _clean(before)
            if after is not before:
                changes[name] = after
        return msgspec.structs.replace(value, **changes) if changes else value
    if isinstance(value, tuple):
        items = tuple(_clean(item) for item in value)
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return value
