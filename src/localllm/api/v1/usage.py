"""Token counts as OpenAI reports them."""

from __future__ import annotations

from collections.abc import Sequence

from localllm.core.generation import Tier, Usage
from localllm.core.openai import CompletionTokensDetails, PromptTokensDetails, UsageReply


def usage_reply(usages: Sequence[Usage]) -> UsageReply:
    """The sum over every generation that one request took."""
    prompt = sum(usage.prompt_tokens for usage in usages)
    completion = sum(usage.completion_tokens for usage in usages)
    return UsageReply(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptTokensDetails(sum(usage.cached_tokens for usage in usages)),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
            accepted_prediction_tokens=sum(usage.accepted_prediction_tokens for usage in usages),
            rejected_prediction_tokens=sum(usage.rejected_prediction_tokens for usage in usages),
        ),
    )


def served_tier(usages: Sequence[Usage], asked: Tier) -> str:
    """The tier that a request was really served in."""
    served = next((usage.served_tier for usage in usages if usage.served_tier is not None), asked)
    return served.value
