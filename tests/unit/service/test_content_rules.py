"""Content rules on text that is cut anywhere: nothing of a match is shown, and nothing else is lost or kept for long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.errors import ConfigInvalid
from localllm.core.generation import TextDelta
from localllm.service.gateway.content_rules import HELD_CHARS, Window, compiled, require_valid


def window(*patterns: str) -> tuple[Window, set[int]]:
    blocked: set[int] = set()
    return Window(compiled(patterns), blocked, TextDelta("")), blocked


def shown(pieces: list[str], *patterns: str) -> tuple[str, bool]:
    """What comes out until the first match, and whether there was one."""
    made, blocked = window(*patterns)
    out = ""
    for piece in pieces:
        out += made.feed(piece)
        if blocked:
            return out, True
    return out + made.finish(), False


@given(st.lists(st.text(alphabet="secrt x", max_size=5), max_size=20))
def test_what_is_shown_ends_where_the_match_begins(pieces: list[str]) -> None:
    text = "".join(pieces)
    for pattern in ("secret", r"sec.et", "(?:secret)"):
        out, was_blocked = shown(pieces, pattern)
        begins = text.find("secret") if pattern != r"sec.et" else None
        if begins is None:
            assert was_blocked == (compiled([pattern])[0].search(text) is not None)
        else:
            assert (out, was_blocked) == ((text[:begins], True) if begins >= 0 else (text, False))


def test_plain_words_hold_back_only_their_beginnings() -> None:
    made, _ = window("secret word", "other")
    assert made.feed("nothing here") == "nothing here"
    assert made.feed(" but sec") == " but "
    assert made.feed("urity") == "security"
    assert made.feed(" o") == " "
    assert made.finish() == "o"


def test_other_expressions_hold_back_their_window() -> None:
    made, blocked = window(r"a\d+b")
    assert made.feed("x" * 500) == "x" * (500 - HELD_CHARS)
    assert made.feed("a1b") == "x" * HELD_CHARS
    assert blocked == {0}


def test_a_pattern_that_is_none_stops_the_start() -> None:
    with pytest.raises(ConfigInvalid, match="blocked_patterns"):
        require_valid(["fine", "("])
