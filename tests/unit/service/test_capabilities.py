from __future__ import annotations

import pytest

from localllm.core.errors import Unsupported
from localllm.core.generation import (
    ChatPrompt,
    GenerationRequest,
    Grammar,
    ImagePart,
    JsonObject,
    Message,
    Sampling,
    TextPrompt,
    Tool,
)
from localllm.engines.base import Capability, InstanceInfo
from localllm.service.capabilities import check_request

HI = ChatPrompt(messages=(Message(role="user", content="hi"),))
PICTURE = ChatPrompt(messages=(Message(role="user", content=(ImagePart(b"", "image/png"),)),))
TOOLS = ChatPrompt(messages=HI.messages, tools=(Tool("f"),))
NO_TOOLS = ChatPrompt(messages=HI.messages, tools=(Tool("f"),), tool_choice="none")


def info(*missing: Capability) -> InstanceInfo:
    return InstanceInfo(
        engine="e",
        engine_version=None,
        context_length=1,
        parallel=1,
        capabilities=frozenset(Capability) - set(missing),
    )


def request(**fields: object) -> GenerationRequest:
    return GenerationRequest(request_id="r", **{"prompt": HI, **fields})  # type: ignore[arg-type]


CASES = [
    (request(), Capability.CHAT, "messages"),
    (request(prompt=TextPrompt("x")), Capability.COMPLETION, "prompt"),
    (request(prompt=TOOLS), Capability.TOOLS, "tools"),
    (request(prompt=PICTURE), Capability.VISION, "messages"),
    (request(constraint=JsonObject()), Capability.JSON_SCHEMA, "response_format"),
    (request(constraint=Grammar("root ::= x")), Capability.GRAMMAR, "grammar"),
    (request(logprobs=0), Capability.LOGPROBS, "logprobs"),
    (request(sampling=Sampling(logit_bias={1: 1.0})), Capability.LOGIT_BIAS, "logit_bias"),
    (request(sampling=Sampling(seed=0)), Capability.SEED, "seed"),
    (request(prediction="x"), Capability.PREDICTION, "prediction"),
    (request(n=2), Capability.MULTIPLE_CHOICES, "n"),
]


@pytest.mark.parametrize(("asked", "capability", "param"), CASES)
def test_each_field_needs_its_capability(
    asked: GenerationRequest, capability: Capability, param: str
) -> None:
    check_request(asked, info(), "m")
    with pytest.raises(Unsupported) as caught:
        check_request(asked, info(capability), "m")
    assert caught.value.param == param


def test_tools_that_may_not_be_used_need_nothing() -> None:
    check_request(request(prompt=NO_TOOLS), info(Capability.TOOLS), "m")
