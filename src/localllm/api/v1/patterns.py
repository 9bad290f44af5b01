"""Regular expressions of a schema → the few constructs that llama.cpp's grammar converter takes.

The converter wants ``^…$``, knows no ``\\d``, and lets ``.`` and negated classes produce a quote or a backslash, which
would end the JSON string they stand in. So a pattern is parsed here (the subset of ECMA 262 that describes a regular
language) and written anew. What is not regular, or looks around, is refused by name.
"""

from __future__ import annotations

MAX_PATTERN_LENGTH = 1024

# What may not stand bare inside a JSON string. In a class for a grammar, a backslash is written twice.
_NOT_IN_STRING = '"\\\\\\x00-\\x1F'
_ANY = f"[^{_NOT_IN_STRING}]"
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": " "}
_QUANTIFIERS = "*+?{"
_SYNTAX = "^$.[]()|{}*+?"


class PatternUnsupported(Exception):
    """Why a pattern cannot be enforced, as the end of a sentence."""


def grammar_pattern(pattern: str) -> str:
    """The same language as ``pattern``, anchored, in the converter's dialect.

    Raises:
        PatternUnsupported: look-around, back references, word boundaries, Unicode classes, or a syntax error.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise PatternUnsupported(f"is longer than {MAX_PATTERN_LENGTH} characters")
    return _Parser(pattern).whole()


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def whole(self) -> str:
        """JSON Schema's patterns may match anywhere: each alternative is free at the ends it does not anchor."""
        alternatives = []
        while True:
            free_start = not self._take("^")
            sequence = self._sequence()
            free_end = not self._take("$")
            alternatives.append(
                f"{_ANY + '*' if free_start else ''}{sequence}{_ANY + '*' if free_end else ''}"
            )
            if not self._take("|"):
                break
        if self.at < len(self.pattern):
            raise PatternUnsupported(f"has {self.pattern[self.at]!r} where it cannot be enforced")
        only = alternatives[0] if len(alternatives) == 1 else f"({'|'.join(alternatives)})"
        return f"^{only}$"

    def _sequence(self) -> str:
        out = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)$":
            atom = self._atom()
            out.append(atom + self._quantifier())
        return "".join(out)

    def _group(self) -> str:
        if self._take("?"):
            if self._take("<") and self._peek() not in ("=", "!", ""):
                while not self._take(">"):
                    self._next()
            elif not self._take(":"):
                raise PatternUnsupported("looks ahead or behind, which a grammar cannot")
        alternatives = [self._sequence()]
        while self._take("|"):
            alternatives.append(self._sequence())
        if not self._take(")"):
            raise PatternUnsupported("has a group that does not end, or an anchor inside a group")
        return f"({'|'.join(alternatives)})"

    def _atom(self) -> str:
        character = self._next()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return _ANY
            case "\\":
                return self._escape()
            case "^" | "*" | "+" | "?" | "{" | "}" | "]":
                raise PatternUnsupported(f"has {character!r} where it cannot be enforced")
            case _:
                return _literal(character)

    def _escape(self) -> str:
        name = self._next()
        if name.lower() in _CLASSES:
            members = _CLASSES[name.lower()]
            return f"[{members}]" if name.islower() else f"[^{members}{_NOT_IN_STRING}]"
        return _literal(self._escaped_character(name))

    def _escaped_character(self, name: str) -> str:
        if name == "u":
            digits = "".join(self._next() for _ in range(4))
            try:
                return chr(int(digits, 16))
            except ValueError as error:
                raise PatternUnsupported("has a broken \\u escape") from error
        if name.isalnum():
            raise PatternUnsupported(f"uses \\{name}, which cannot be enforced")
        return name

    def _class(self) -> str:
        """A bracket class, with its escapes spelled out and what would end the string kept out of it."""
        negated = self._take("^")
        members: list[str] = []
        while not self._take("]"):
            character = self._next()
            if character == "\\":
                name = self._next()
                if name in _CLASSES:
                    members.append(_CLASSES[name])
                    continue
                character = self._escaped_character(name)
            if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                self._next()
                last = self._next()
                if last == "\\":
                    last = self._escaped_character(self._next())
                members.append(_range(character, last))
            else:
                members.append(_range(character, character))
        if not members:
            raise PatternUnsupported("has an empty class")
        return f"[{'^' if negated else ''}{''.join(members)}{_NOT_IN_STRING if negated else ''}]"

    def _quantifier(self) -> str:
        if self._peek() not in tuple(_QUANTIFIERS):
            return ""
        out = self._next()
        if out == "{":
            while not out.endswith("}"):
                out += self._next()
            low, comma, high = out[1:-1].partition(",")
            if not low.isdigit() or (high and not high.isdigit()):
                raise PatternUnsupported(f"has {out!r}, which is not a count")
            if max(int(low), int(high or 0)) > 1000 or (comma and high and int(high) < int(low)):
                raise PatternUnsupported(f"repeats {out}, more than can be enforced")
        self._take("?")  # a lazy quantifier describes the same language
        return out

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _take(self, character: str) -> bool:
        if self._peek() == character:
            self.at += 1
            return True
        return False

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise PatternUnsupported("ends too early")
        self.at += 1
        return character


def _literal(character: str) -> str:
    if character in '"\\' or character < " ":
        raise PatternUnsupported("asks for a quote, a backslash or a control character inside the string")
    # converters disagree on escapes outside of classes, but agree on a class of one
    return f"[\\x{ord(character):02X}]" if character in _SYNTAX else character


def _range(first: str, last: str) -> str:
    """A class's members from ``first`` to ``last``, without those that may not stand bare in a JSON string."""
    low, high = ord(first), ord(last)
    if high < low:
        raise PatternUnsupported("has a class whose range runs backwards")
    spans, start = [], max(low, 0x20)
    for forbidden in (0x22, 0x5C):
        if start <= forbidden <= high:
            spans.append((start, forbidden - 1))
            start = forbidden + 1
    spans.append((start, high))
    written = [
        _member(begin) if begin == end else f"{_member(begin)}-{_member(end)}"
        for begin, end in spans
        if begin <= end
    ]
    if not written:
        raise PatternUnsupported("asks for a quote, a backslash or a control character inside the string")
    return "".join(written)


def _member(point: int) -> str:
    """One member of a class; as a code point where the bare character would mean something else there."""
    character = chr(point)
    return character if character.isalnum() or point > 0xFF else f"\\x{point:02X}"
