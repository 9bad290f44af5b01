from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.engines.text import StopMatcher, Utf8Stream


@given(st.text(), st.integers(1, 4))
def test_characters_stay_whole_however_their_bytes_are_cut(text: str, size: int) -> None:
    stream = Utf8Stream()
    data = text.encode()
    pieces = [stream.feed(data[at : at + size]) for at in range(0, len(data), size)]
    assert "".join(pieces) == text


def test_bytes_that_never_become_a_character_are_not_shown() -> None:
    stream = Utf8Stream()
    assert stream.feed("é".encode()[:1]) == ""
    assert stream.feed(b"x") == "\ufffdx"  # now it is certain that they are no text
    assert stream.feed("€".encode()[:2]) == ""


@given(
    st.text(alphabet="ab<>/", max_size=60),
    st.lists(st.text(alphabet="ab<>/", min_size=1, max_size=5), max_size=3),
    st.integers(1, 7),
)
def test_what_is_shown_ends_before_the_stop_string_that_is_complete_first(
    text: str, stops: list[str], size: int
) -> None:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.feed(text[at : at + size]) for at in range(0, len(text), size))
    shown += matcher.flush()
    found = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert shown == (text[: min(found)[1]] if found else text)
    assert (matcher.matched is None) == (not found)


def test_only_what_may_become_a_stop_string_is_held_back() -> None:
    matcher = StopMatcher(["</end>"])
    assert matcher.feed("one <") == "one "
    assert matcher.feed("b> two </en") == "<b> two "
    assert matcher.feed("d> three") == ""
    assert matcher.matched == "</end>"
    assert matcher.flush() == ""


@pytest.mark.parametrize("stops", [["bc", "abc"], ["abc", "bc"]])
def test_of_two_that_end_together_the_longer_is_reported(stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    assert matcher.feed("x abc") == "x "
    assert matcher.matched == "abc"
