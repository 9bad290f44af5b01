from __future__ import annotations

import pytest

from localllm.core.errors import ContextLengthExceeded, QueueFull
from localllm.core.generation import (
    ChatPrompt,
    Finished,
    FinishReason,
    GenerationRequest,
    ImagePart,
    JsonSchema,
    Message,
    Sampling,
    Started,
    TextDelta,
    TextPart,
    TokenLogprob,
    Tool,
    Usage,
)
from localllm.core.launch import LaunchPlan
from localllm.engines.llama_cpp import protocol


def body(data: bytes) -> bytes:
    length = int.from_bytes(data[: protocol.HEADER_BYTES], "big")
    assert len(data) == protocol.HEADER_BYTES + length
    return data[protocol.HEADER_BYTES :]


REQUEST = GenerationRequest(
    request_id="r",
    prompt=ChatPrompt(
        messages=(
            Message(role="system", content="Be brief."),
            Message(role="user", content=(TextPart("what is this?"), ImagePart(b"\x89PNG", "image/png"))),
        ),
        tools=(Tool("look", "Look it up", {"type": "object", "properties": {"q": {"type": "string"}}}),),
    ),
    sampling=Sampling(temperature=0.5, logit_bias={3: -100.0}),
    constraint=JsonSchema({"type": "object"}),
    stop=("\n\n",),
)


@pytest.mark.parametrize(
    "command",
    [
        protocol.Load(LaunchPlan(model_path="/m.gguf", context_length=512, stop=("x",))),
        protocol.Generate(7, REQUEST),
        protocol.Cancel(7),
        protocol.Embed(8, ("text", (1, 2, 3))),
        protocol.Count(9, REQUEST.prompt),
        protocol.Tokenize(10, "é", True),
        protocol.Detokenize(11, (1, 2)),
        protocol.ReadStats(12),
        protocol.Ping(13),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_command_arrives_as_it_was_sent(command: protocol.Command) -> None:
    assert protocol.command_decoder.decode(body(protocol.frame(command))) == command


@pytest.mark.parametrize(
    "report",
    [
        protocol.Step(
            [
                (1, Started(10, 4, 512)),
                (1, TextDelta("é", 0, (TokenLogprob("\ufffd", -0.5, b"\xc3", 4, ()),))),
                (1, Finished(FinishReason.STOP, 0, "\n")),
                (1, Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=2)),
            ]
        ),
        protocol.Vectors(2, b"\0" * 8, 2, 5),
        protocol.Failed(3, protocol.Problem(code="unsupported_parameter", message="No.", param="n")),
        protocol.Loading(0.5),
        protocol.Pong(4),
    ],
    ids=lambda report: type(report).__name__,
)
def test_a_report_arrives_as_it_was_sent(report: protocol.Report) -> None:
    assert protocol.report_decoder.decode(body(protocol.frame(report))) == report


def test_an_error_keeps_its_class_and_its_figures() -> None:
    problem = protocol.Problem.of(ContextLengthExceeded(900, 512))
    step = protocol.Step([], [(1, problem)])
    received = protocol.report_decoder.decode(body(protocol.frame(step)))
    assert isinstance(received, protocol.Step)
    error = received.failures[0][1].error()
    assert isinstance(error, ContextLengthExceeded)
    assert (error.prompt_tokens, error.context_length, error.param) == (900, 512, "messages")
    assert isinstance(protocol.Problem(code=QueueFull.code, message="full").error(), QueueFull)
