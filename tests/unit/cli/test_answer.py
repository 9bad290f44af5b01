from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from localllm.cli.answer import Figures, ask, sentence
from localllm.client.client import Client
from localllm.core.control import InstancePhase, InstanceState
from localllm.core.errors import EngineCrashed

INSTANCE = InstanceState(
    model="m:Q4_K_M",
    engine="llama_server",
    phase=InstancePhase.READY,
    context_length=4096,
    planned_bytes=1 << 30,
)


class Port:
    """Answers one request with these chunks, the last of which may be an error; remembers what it was asked."""

    def __init__(self, *chunks: dict[str, Any] | Exception) -> None:
        self.chunks = chunks
        self.asked: dict[str, object] = {}

    async def stream_completion(self, body: dict[str, object]) -> AsyncIterator[dict[str, object]]:
        self.asked = body
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def delta(text: str | None = None, finish: str | None = None) -> dict[str, Any]:
    content = {} if text is None else {"content": text}
    return {"choices": [{"index": 0, "delta": content, "finish_reason": finish}]}


USAGE = {
    "choices": [],
    "usage": {
        "prompt_tokens": 12,
        "completion_tokens": 3,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 8},
    },
}


async def test_the_answer_comes_in_pieces_and_without_leading_blanks() -> None:
    port = Port(delta(""), delta(" "), delta(" The"), delta(" end"), delta(finish="stop"), USAGE)
    pieces: list[str] = []
    answer = await ask(cast(Client, port), {"messages": []}, INSTANCE, pieces.append)
    assert pieces == ["The", " end"]
    assert (answer.text, answer.finish_reason, answer.model) == ("The end", "stop", "m:Q4_K_M")
    figures = answer.figures
    assert (figures.prompt_tokens, figures.cached_tokens, figures.completion_tokens) == (12, 8, 3)
    assert figures.ttft_ms is not None
    assert figures.tokens_per_second is not None
    assert (figures.context_length, figures.memory_bytes) == (4096, 1 << 30)
    assert port.asked["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_is_kept_apart_and_counts_as_the_first_token(field: str) -> None:
    thought = {"choices": [{"index": 0, "delta": {field: "Hm."}, "finish_reason": None}]}
    seen: list[str] = []
    answer = await ask(
        cast(Client, Port(thought, delta("\n\nYes"), delta(finish="stop"), USAGE)),
        {},
        INSTANCE,
        lambda text: seen.append(f"text {text}"),
        lambda text: seen.append(f"thought {text}"),
    )
    assert seen == ["thought Hm.", "text Yes"]
    assert (answer.text, answer.reasoning) == ("Yes", "Hm.")
    assert answer.figures.ttft_ms is not None


async def test_an_empty_answer_has_no_times() -> None:
    answer = await ask(cast(Client, Port(delta(finish="stop"), USAGE)), {}, INSTANCE, print)
    assert answer.text == ""
    assert answer.figures.ttft_ms is None
    assert answer.figures.tokens_per_second is None


async def test_an_error_in_the_stream_is_raised_after_what_came() -> None:
    pieces: list[str] = []
    with pytest.raises(EngineCrashed):
        await ask(cast(Client, Port(delta("half"), EngineCrashed("gone"))), {}, INSTANCE, pieces.append)
    assert pieces == ["half"]


def test_the_figures_as_a_sentence() -> None:
    figures = Figures(
        prompt_tokens=31,
        cached_tokens=12,
        completion_tokens=96,
        ttft_ms=180.4,
        tokens_per_second=42.13,
        context_length=8192,
        memory_bytes=3 << 30,
        engine="llama_server",
    )
    assert sentence(figures) == (
        "42.1 tok/s · TTFT 180 ms · 31 prompt tokens (12 cached) · 96 answered · context 127/8192 · memory 3.0 GiB"
        " · llama_server"
    )
    assert sentence(Figures()) == ""
