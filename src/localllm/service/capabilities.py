"""What a request asks of an engine, checked before it starts: refused by name, never dropped in silence."""

from __future__ import annotations

from collections.abc import Iterator

from localllm.core.errors import Unsupported
from localllm.core.generation import ChatPrompt, GenerationRequest, Grammar, ImagePart
from localllm.engines.base import Capability, InstanceInfo


def check_request(request: GenerationRequest, info: InstanceInfo, model: str) -> None:
    """Raise ``Unsupported`` with the field's name for the first thing the loaded model cannot honour."""
    for capability, param in _needs(request):
        if capability not in info.capabilities:
            raise Unsupported(
                f"{model!r} on the engine {info.engine!r} does not support {param!r}.",
                hint="Leave the field out, or use a model or engine that has it: localllm show MODEL",
                param=param,
                details={"capability": capability.value, "engine": info.engine},
            )


def _needs(request: GenerationRequest) -> Iterator[tuple[Capability, str]]:
    prompt = request.prompt
    if isinstance(prompt, ChatPrompt):
        yield Capability.CHAT, "messages"
        if prompt.tools and prompt.tool_choice != "none":
            yield Capability.TOOLS, "tools"
        if any(_has_image(message.content) for message in prompt.messages):
            yield Capability.VISION, "messages"
    else:
        yield Capability.COMPLETION, "prompt"
    if request.constraint is not None:
        grammar = isinstance(request.constraint, Grammar)
        yield (Capability.GRAMMAR, "grammar") if grammar else (Capability.JSON_SCHEMA, "response_format")
    if request.logprobs is not None:
        yield Capability.LOGPROBS, "logprobs"
    if request.sampling.logit_bias:
        yield Capability.LOGIT_BIAS, "logit_bias"
    if request.sampling.seed is not None:
        yield Capability.SEED, "seed"
    if request.prediction is not None:
        yield Capability.PREDICTION, "prediction"
    if request.n > 1:
        yield Capability.MULTIPLE_CHOICES, "n"


def _has_image(content: str | tuple[object, ...]) -> bool:
    return not isinstance(content, str) and any(isinstance(part, ImagePart) for part in content)
