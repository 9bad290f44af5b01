from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.client import sse
from localllm.client.sse import Decoder, ServerSentEvent
from localllm.core.errors import ServiceError


def decode(*chunks: bytes) -> list[ServerSentEvent]:
    decoder = Decoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def test_names_data_and_comments() -> None:
    assert decode(b": ping\n\nevent: task\ndata: {}\n\ndata: plain\n\n") == [
        ServerSentEvent("task", "{}"),
        ServerSentEvent("message", "plain"),
    ]


def test_several_data_lines_are_one_text_and_one_space_goes() -> None:
    assert decode(b"data: one\ndata:  two\ndata\n\n") == [ServerSentEvent("message", "one\n two\n")]


def test_an_event_that_never_ended_is_not_given() -> None:
    assert decode(b"data: half") == []


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@given(data=st.data())
def test_any_split_of_the_bytes_gives_the_same_events(newline: bytes, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1)))
    stream = b"".join(b"event: e" + newline + b"data: " + t.encode() + newline * 2 for t in texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    # a lone \r at the very end may be the first half of \r\n: the last event shows once more bytes come
    decoded = decode(*chunks, newline)
    assert decoded == [ServerSentEvent("e", text) for text in texts]


def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_CHARS", 100)
    with pytest.raises(ServiceError):
        decode(b"data: " + b"x" * 200)
