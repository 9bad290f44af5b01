"""Chunks as llama-server sends them, and the events they must become."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from localllm.core.errors import GenerationFailed
from localllm.core.generation import (
    Event,
    Finished,
    FinishReason,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
    Tier,
    ToolCallDelta,
    ToolCallStart,
)
from localllm.engines.llama_server.answer import Answer
from localllm.engines.llama_server.wire import decode_chat_chunk, decode_text_chunk

PROGRESS: dict[str, object] = {"prompt_progress": {"total": 9, "cache": 4, "processed": 4, "time_ms": 1}}


def answer(**fields: Any) -> Answer:
    return Answer(**({"context_length": 100, "choices": 1, "alternatives": None} | fields))


def chat(to: Answer, chunk: dict[str, object], first: int = 0) -> list[Event]:
    return to.chat(decode_chat_chunk(msgspec.json.encode(chunk)), first)


def text(to: Answer, chunk: dict[str, object]) -> list[Event]:
    return to.text(decode_text_chunk(msgspec.json.encode(chunk)), 0)


def piece(index: int = 0, reason: str | None = None, **delta: object) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


def usage(tokens: int) -> dict[str, object]:
    timings = {"cache_n": 4, "prompt_n": 5, "prompt_ms": 8.5, "predicted_n": tokens, "predicted_ms": 20.0}
    return {"choices": [], "usage": {"completion_tokens": tokens, "prompt_tokens": 9}, "timings": timings}


def test_a_plain_chat_from_first_to_last() -> None:
    to = answer()
    assert chat(to, piece(role="assistant", content=None) | PROGRESS) == [Started(9, 4, 100)]
    assert chat(to, PROGRESS) == [Progress(4, 9)]
    assert chat(to, piece(content="Hello")) == [TextDelta("Hello")]
    assert chat(to, piece(reason="length")) == [Finished(FinishReason.LENGTH)]
    assert chat(to, usage(3)) == []
    assert to.complete
    done = to.usage(1.0, Tier.DEFAULT)
    assert (done.prompt_tokens, done.cached_tokens, done.completion_tokens) == (9, 4, 3)
    assert (done.prefill_ms, done.decode_ms) == (8.5, 20.0)


def test_usage_sums_the_choices_and_each_ends_once() -> None:
    to = answer(choices=2)
    chat(to, PROGRESS)
    chat(to, piece(1, content="b"))
    assert chat(to, piece(1, reason="stop")) == [Finished(FinishReason.STOP, 1)]
    chat(to, usage(2))
    assert chat(to, piece(0, content="a")) == [TextDelta("a", 0)]
    chat(to, piece(0, reason="length"))
    chat(to, usage(5))
    assert to.complete
    assert to.usage(0, Tier.DEFAULT).completion_tokens == 7


def test_a_stop_string_across_chunks_ends_the_answer_with_the_tokens_so_far() -> None:
    to = answer(stops=("END",))
    chat(to, PROGRESS)
    assert chat(to, piece(content="one E") | {"timings": {"predicted_n": 2}}) == [TextDelta("one ")]
    assert not to.over(0, 1)
    assert chat(to, piece(content="ND two") | {"timings": {"predicted_n": 3}}) == [
        Finished(FinishReason.STOP, 0, "END")
    ]
    assert to.over(0, 1)
    assert chat(to, piece(content=" more")) == []
    assert to.usage(0, Tier.DEFAULT).completion_tokens == 3


def test_text_held_back_for_a_stop_string_comes_when_the_answer_ends_otherwise() -> None:
    to = answer(stops=("END",))
    chat(to, PROGRESS)
    assert chat(to, piece(content="EN")) == []
    assert chat(to, piece(reason="length")) == [TextDelta("EN"), Finished(FinishReason.LENGTH)]


def test_with_several_choices_the_rest_is_read_until_all_have_ended() -> None:
    to = answer(choices=2, stops=("!",))
    chat(to, PROGRESS)
    chat(to, piece(0, content="a!"))
    assert not to.over(0, 2)
    chat(to, piece(1, content="b"))
    chat(to, piece(1, reason="length"))
    assert not to.over(0, 2)
    chat(to, usage(4))
    assert to.over(0, 2)


def test_reasoning_and_tool_calls_keep_their_own_channels() -> None:
    to = answer()
    chat(to, PROGRESS)
    assert chat(to, piece(reasoning_content="hm")) == [ReasoningDelta("hm")]
    begin = {"index": 3, "id": "x", "function": {"name": "f", "arguments": "{"}}
    assert chat(to, piece(tool_calls=[begin])) == [ToolCallStart(0, "x", "f"), ToolCallDelta(0, "{")]
    more = {"index": 3, "function": {"arguments": "}"}}
    assert chat(to, piece(tool_calls=[more])) == [ToolCallDelta(0, "}")]
    assert chat(to, piece(reason="tool_calls")) == [Finished(FinishReason.TOOL_CALLS)]
    assert to.usage(0, Tier.DEFAULT).reasoning_tokens == 1


def test_a_cut_tool_call_ends_with_length_and_text_alone_never_with_tool_calls() -> None:
    cut = answer()
    chat(cut, PROGRESS)
    chat(cut, piece(tool_calls=[{"index": 0, "id": "x", "function": {"name": "f"}}]))
    assert chat(cut, piece(reason="length")) == [Finished(FinishReason.LENGTH)]
    plain = answer()
    chat(plain, PROGRESS)
    assert chat(plain, piece(reason="tool_calls")) == [Finished(FinishReason.STOP)]


def test_logprobs_of_tokens_without_text_come_with_the_next_text() -> None:
    def token(text_: str, data: list[int]) -> dict[str, object]:
        other = {"id": 2, "token": "x", "bytes": [120], "logprob": -2.0}
        return {"id": 1, "token": text_, "bytes": data, "logprob": -0.5, "top_logprobs": [other, other]}

    to = answer(alternatives=1)
    chat(to, PROGRESS)
    silent = {"index": 0, "delta": {}, "logprobs": {"content": [token("", [195])]}}
    assert chat(to, {"choices": [silent]}) == []
    spoken = {"index": 0, "delta": {"content": "é"}, "logprobs": {"content": [token("é", [169])]}}
    (delta,) = chat(to, {"choices": [spoken]})
    assert isinstance(delta, TextDelta)
    assert b"".join(entry.token_bytes for entry in delta.logprobs) == "é".encode()
    assert [len(entry.top) for entry in delta.logprobs] == [1, 1]


def test_a_completion_counts_from_its_own_figures() -> None:
    to = answer()
    assert text(to, {"content": "", **PROGRESS}) == [Started(9, 4, 100)]
    assert text(to, {"content": "Hi", "tokens_predicted": 1}) == [TextDelta("Hi")]
    last = {"content": "", "stop": True, "stop_type": "limit", "tokens_predicted": 2}
    assert text(to, last) == [Finished(FinishReason.LENGTH)]
    assert to.usage(0, Tier.DEFAULT).completion_tokens == 2


def test_an_error_in_the_stream_is_raised_not_shown() -> None:
    with pytest.raises(GenerationFailed, match="boom"):
        chat(answer(), {"error": {"message": "boom", "code": 500}})


def test_a_server_that_does_not_count_the_prompt_is_too_old() -> None:
    with pytest.raises(GenerationFailed, match="too old"):
        chat(answer(), piece(content="Hi"))
