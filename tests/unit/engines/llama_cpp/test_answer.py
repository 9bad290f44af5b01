from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from localllm.core.generation import (
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    ReasoningDelta,
    Sampling,
    Started,
    TextDelta,
    Tier,
    TokenPrompt,
    ToolCallStart,
)
from localllm.engines.llama_cpp.answer import Answer, Job
from localllm.engines.llama_cpp.parsers import Family, OutputParser, make_parser
from localllm.engines.llama_cpp.sampling import Sampler, resolve

PIECES = [
    b"",
    b"Hello",
    b" w",
    b"orld",
    "é".encode()[:1],
    "é".encode()[1:],
    b" stop",
    b" here",
    b"<think>",
    b"</think>",
]
END, CONTROL = 0, 8


class Vocabulary:
    """Token 8 (``<think>``) is a control token: it is only spelled when special tokens are asked for."""

    def piece(self, token: int, *, special: bool) -> bytes:
        return b"" if token == CONTROL and not special else PIECES[token]


def job(**fields: object) -> Job:
    request = GenerationRequest(request_id="r", prompt=TokenPrompt((1,)), **fields)  # type: ignore[arg-type]
    return Job(1, request, [1], context_length=100, arrived=10.0)


def answer(
    of: Job,
    *,
    count: int = 20,
    stops: Sequence[str] = (),
    parser: OutputParser | None = None,
    choice: int = 0,
) -> Answer:
    made = Answer(
        of,
        choice,
        np.array([1], np.int32),
        limit=1 + count,
        reserve=1 + count,
        sampler=Sampler(resolve(Sampling(temperature=0))),
        vocabulary=Vocabulary(),
        end_tokens=frozenset({END}),
        parser=parser,
        stops=stops,
    )
    of.answers.append(made)
    return made


def say(made: Answer, *tokens: int) -> list[Event]:
    """Let the model say ``tokens``, each in a step of its own."""
    events: list[Event] = []
    for token in tokens:
        row = np.zeros(len(PIECES), np.float32)
        row[token] = 5
        made.take(row, 11.0)
        events += made.events()
    return events


def test_characters_are_whole_and_the_end_is_not_text() -> None:
    events = say(answer(job()), 1, 4, 5, END)
    assert events == [TextDelta("Hello"), TextDelta("é"), Finished(FinishReason.STOP)]


def test_a_stop_string_across_tokens_never_shows() -> None:
    events = say(answer(job(), stops=("world stop",)), 1, 2, 3, 6)
    assert events == [TextDelta("Hello"), TextDelta(" "), Finished(FinishReason.STOP, 0, "world stop")]


def test_what_was_held_back_for_a_stop_string_comes_with_the_end() -> None:
    events = say(answer(job(), count=2, stops=("world",)), 1, 2)
    assert events == [TextDelta("Hello"), TextDelta(" w"), Finished(FinishReason.LENGTH)]


def test_the_end_token_at_the_limit_is_a_stop_not_a_cut() -> None:
    assert say(answer(job(), count=2), 1, END)[-1] == Finished(FinishReason.STOP)


def test_log_probabilities_cover_every_token_even_half_characters() -> None:
    events = say(answer(job(logprobs=1), count=4), 1, 4, 5, 4)
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert [[p.token_id for p in delta.logprobs] for delta in deltas] == [[1], [4, 5], [4]]
    assert deltas[-1].text == ""
    best = deltas[0].logprobs[0]
    assert best.top[0].token_id == 1
    assert best.logprob == pytest.approx(best.top[0].logprob)


def test_control_tokens_show_only_to_a_parser_that_reads_them() -> None:
    assert say(answer(job()), CONTROL, 1)[0] == TextDelta("Hello")
    parsed = answer(job(), parser=make_parser(Family.HERMES))
    events = say(parsed, CONTROL, 1, 9, 2, END)
    assert events[0] == ReasoningDelta("Hello")
    assert TextDelta("w") in events
    assert 0 < parsed.reasoning_tokens <= 2


def test_a_called_tool_is_the_reason_to_finish() -> None:
    class Calls:
        markers: frozenset[str] = frozenset()
        calls = 1

        def feed(self, text: str) -> list[Event]:
            return [ToolCallStart(0, "id", "look")]

        def finish(self) -> list[Event]:
            return []

    events = say(answer(job(), parser=Calls(), choice=2), 1, END)
    assert events == [ToolCallStart(0, "id", "look", 2), Finished(FinishReason.TOOL_CALLS, 2)]
    assert say(answer(job(), parser=Calls(), count=1), 1)[-1] == Finished(FinishReason.LENGTH)


def test_a_job_starts_once_and_its_usage_sums_its_answers() -> None:
    of = job(n=2)
    first, second = answer(of), answer(of, choice=1)
    assert of.start(3, 10.5) == Started(1, 3, 100)
    assert of.start(9, 10.6) is None
    say(first, 1, 2, END)
    assert not all(one.finished for one in of.answers)
    say(second, 1, END)
    assert of.done
    usage = of.usage(12.0)
    assert (usage.cached_tokens, usage.completion_tokens) == (3, 5)
    assert (usage.queue_ms, usage.prefill_ms, usage.decode_ms) == pytest.approx((500, 500, 1000))


def test_waiting_lifts_a_tier() -> None:
    flex, default = answer(job(tier=Tier.FLEX)), answer(job())
    assert default.rank(11) < flex.rank(11)
    default.waited_since = 60.0
    assert flex.rank(60) < default.rank(60)
