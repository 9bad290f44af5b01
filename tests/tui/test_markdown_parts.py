from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localllm.tui.markdown_parts import split_markdown

LINES = st.sampled_from(
    [
        "word word\n",
        "\n",
        "```py\n",
        "```\n",
        "~~~~\n",
        "- item\n",
        "  more\n",
        "1. one\n",
        "# head\n",
        "| a |\n",
        "> q\n",
        "tail",
    ]
)
TEXTS = st.lists(LINES, max_size=60).map("".join)


@given(TEXTS, st.integers(min_value=1, max_value=60))
def test_nothing_is_lost(text: str, limit: int) -> None:
    assert "".join(split_markdown(text, limit)) == text


@given(TEXTS, st.integers(min_value=1, max_value=60), st.data())
def test_a_cut_never_moves_when_text_is_added(text: str, limit: int, data: st.DataObject) -> None:
    end = data.draw(st.integers(min_value=0, max_value=len(text)))
    before, after = split_markdown(text[:end], limit), split_markdown(text, limit)
    assert after[: len(before) - 1] == before[:-1]
    assert after[len(before) - 1].startswith(before[-1])


def test_code_is_never_cut() -> None:
    text = "intro\n\n```py\na\n\nb = 1\n\nc\n```\n\nafter\n"
    assert split_markdown(text, 1) == ["intro\n\n```py\na\n\nb = 1\n\nc\n```\n\n", "after\n"]


def test_a_longer_fence_may_hold_a_shorter_one() -> None:
    text = "````\n```\n\nstill code\n\n```\n````\n\nafter"
    assert split_markdown(text, 1)[-1] == "after"
    assert len(split_markdown(text, 1)) == 2


def test_lists_and_tables_stay_whole() -> None:
    text = "one\n\n- a\n\n- b\n\n1. c\n\n2. d\n\n| t |\n\ntwo\n"
    assert split_markdown(text, 1) == ["one\n\n- a\n\n- b\n\n1. c\n\n2. d\n\n| t |\n\n", "two\n"]


def test_a_short_text_is_one_part() -> None:
    assert split_markdown("a\n\nb\n\nc") == ["a\n\nb\n\nc"]
    assert split_markdown("") == [""]
