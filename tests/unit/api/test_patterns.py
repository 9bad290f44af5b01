"""Patterns written anew for the grammar: the same strings, anchored, and never one that would break out of its quotes."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localllm.api.v1.patterns import PatternUnsupported, grammar_pattern


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (r"^[a-z]+$", ["abc"], ["", "a1", "A"]),
        (r"\d{3}-\d{4}", ["555-1234", "call 555-1234 now"], ["55-1234"]),
        (r"^a|b$", ["a", "ax", "xb"], ["x", "bx"]),
        (r"^\w+@\w+\.com$", ["me@here.com"], ["me@herexcom"]),
        (r"^[\w\-.]+$", ["a-b.c_d"], ["a b", ""]),
        (r"^(?:foo|bar)+?$", ["foo", "foobar"], ["", "fo"]),
        (r"^(?<year>\d{4})$", ["2026"], ["26"]),
        (r"^\$\d+$", ["$5"], ["5"]),
        (r"^[^a-c]*$", ["xyz", ""], ["xay"]),
        (r"^[\]\[]+$", ["[]"], ["()"]),
        (r"^a{2,}$", ["aa", "aaa"], ["a"]),
        (r"^\u00e9+$", ["éé"], ["e"]),
        (r"^\S+$", ["abc"], ["a b"]),
        (r"^a\|b$", ["a|b"], ["a", "b"]),
        (r"^[a-]$", ["a", "-"], ["b"]),
        ("", ["", "anything"], []),
    ],
)
def test_the_language_stays_the_same(pattern: str, fits: list[str], does_not: list[str]) -> None:
    written = grammar_pattern(pattern)
    assert written.startswith("^") and written.endswith("$")
    for text in fits:
        assert re.fullmatch(written[1:-1], text), (written, text)
    for text in does_not:
        assert not re.fullmatch(written[1:-1], text), (written, text)


@pytest.mark.parametrize("pattern", [r"^.*$", r"^[^x]*$", r"^[ -~]*$", r"^\D*$", r"^\S*$", ""])
def test_nothing_breaks_out_of_its_string(pattern: str) -> None:
    written = grammar_pattern(pattern)
    for text in ('"', "\\", "\n", "\x00", '",'):
        assert not re.fullmatch(written[1:-1], text), (written, text)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(?=a)b", r"(?!a)", r"(?<=a)", r"\bword\b", r"(a)\1", r"\p{L}", "a**", "[b-a]", "[]", "(", "a)", "a{2", "a{,3}",
        "a{1001}", "a{3,2}", r"\u12", "\\", r"^\"$", r"^\\$", "x$y", "(^a)", "a" * 2000,
    ],
)  # fmt: skip
def test_what_no_grammar_can_hold_is_refused(pattern: str) -> None:
    with pytest.raises(PatternUnsupported):
        grammar_pattern(pattern)


@settings(max_examples=300)
@given(st.text(alphabet='ab\\dws^$.|()[]{}*+?-,1" \n', max_size=20))
def test_any_text_is_written_or_refused(pattern: str) -> None:
    try:
        written = grammar_pattern(pattern)
    except PatternUnsupported:
        return
    json.dumps(written)
    re.compile(written)
