from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from localllm.core.control import ChatMessage, ModelDetail, ModelSummary, TaskPhase
from localllm.tui.sanitise import clean, clean_text

FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@given(st.text(alphabet=st.characters()))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not FORBIDDEN.search(clean_text(text))


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_text_without_controls_is_untouched(text: str) -> None:
    assert clean_text(text) == text


@given(st.lists(st.text(), max_size=6))
def test_pieces_clean_like_the_whole(pieces: list[str]) -> None:
    assert "".join(map(clean_text, pieces)) == clean_text("".join(pieces))


def test_escape_sequences_lose_their_teeth() -> None:
    assert clean_text("a\x1b[2Jb\x1b]0;title\x07c\x9b31m\r\nd\te") == "a[2Jb]0;titlec31m\nd\te"


def test_bidi_overrides_go_and_right_to_left_text_stays() -> None:
    assert clean_text("\u202eevil\u202c \u2067x\u2069 שלום 👩‍👩‍👧") == "evil x שלום 👩‍👩‍👧"


def test_half_characters_become_a_replacement() -> None:
    assert clean_text("a\ud800b") == "a\ufffdb"


def test_structs_are_cleaned_to_any_depth() -> None:
    detail = ModelDetail(
        summary=ModelSummary(name="a\x1b[31m", quant=None, size_bytes=1, capabilities=("x\x07",)),
        facts={"general.name\x00": ["\x1bc", {"k": "\x9b"}], "n": 3},
        stop=("\x7f",),
    )
    cleaned = clean(detail)
    assert cleaned.summary.name == "a[31m"
    assert cleaned.summary.capabilities == ("x",)
    assert cleaned.facts == {"general.name": ["c", {"k": ""}], "n": 3}
    assert cleaned.stop == ("",)


def test_what_is_clean_stays_the_same_object() -> None:
    message = ChatMessage(id="m", parent_id=None, role="user", content="plain", created_at=1.0)
    assert clean(message) is message


def test_enum_members_stay_members() -> None:
    assert clean(TaskPhase.DONE) is TaskPhase.DONE
