"""``POST /v1/completions``: raw text in, text out, no chat template."""

from __future__ import annotations

from starlette.requests import Request

from localllm.api.v1.completion_reply import CompletionChunks, CompletionCollector
from localllm.api.v1.fan_in import fan_in
from localllm.api.v1.inputs import separate
from localllm.api.v1.parameters import (
    MAX_STOP_STRINGS_COMPLETION,
    max_tokens_of,
    only_one_constraint,
    require_stream_for_options,
    sampling_of,
    stop_of,
    tier_of,
)
from localllm.api.v1.port import Asked, Port
from localllm.api.v1.reply import ReplyHead
from localllm.api.v1.respond import Generation, StreamedAnswer, WholeAnswer
from localllm.core.errors import BadRequest, Unsupported
from localllm.core.generation import GenerationRequest, TextPrompt, TokenPrompt
from localllm.core.openai import CompletionRequest
from localllm.service.pipeline import Call

MAX_PROMPTS = 64
_DEFAULT_MAX_TOKENS = 16  # OpenAI's, for this endpoint only


class Completions:
    def __init__(self, port: Port) -> None:
        self._port = port

    async def create(self, request: Request) -> StreamedAnswer | WholeAnswer:
        with self._port.noting_refusals(request, "completions"):
            return await self._answer(request)

    async def _answer(self, request: Request) -> StreamedAnswer | WholeAnswer:
        fields, headers = await self._port.read(request, CompletionRequest)
        asked = self._port.asked(request, fields.model, "cmpl-")
        requests = completion_generations(fields, asked.id)
        sources = [
            self._port.generate(asked, self._call(asked, each, stream=bool(fields.stream)))
            for each in requests
        ]
        n = fields.n or 1
        generation = Generation(
            events=sources[0] if len(sources) == 1 else fan_in(sources, n),
            headers=headers,
            prepare=self._port.preparation(fields, asked),
        )
        options = fields.stream_options
        head = ReplyHead(
            id=asked.id,
            created=asked.created,
            model=asked.model,
            choices=len(requests) * n,
            include_usage=bool(options and options.include_usage),
            logprobs=fields.logprobs is not None,
        )
        echoes = _echoes(fields, requests, n)
        if fields.stream:
            return StreamedAnswer(generation, CompletionChunks(head, echoes), self._port.server)
        return WholeAnswer(generation, CompletionCollector(head, echoes))

    def _call(self, asked: Asked, request: GenerationRequest, *, stream: bool) -> Call:
        return Call(
            id=request.request_id,
            endpoint="completions",
            model=asked.model,
            request=request,
            client=asked.client,
            stream=stream,
            received=asked.received,
        )


def completion_generations(fields: CompletionRequest, request_id: str) -> list[GenerationRequest]:
    """A decoded completion request → one generation per prompt.

    Raises:
        BadRequest: a combination or value that makes no sense; ``param`` names it.
        Unsupported: what no engine here can do.
    """
    require_stream_for_options(fields)
    _require_supported(fields)
    prompts = separate(fields.prompt, "prompt", most=MAX_PROMPTS)
    max_tokens = (
        _DEFAULT_MAX_TOKENS if fields.max_tokens is None else max_tokens_of(("max_tokens", fields.max_tokens))
    )
    return [
        GenerationRequest(
            request_id=request_id if len(prompts) == 1 else f"{request_id}-{index}",
            prompt=TextPrompt(prompt) if isinstance(prompt, str) else TokenPrompt(prompt),
            sampling=sampling_of(fields),
            max_tokens=max_tokens,
            stop=stop_of(fields.stop, MAX_STOP_STRINGS_COMPLETION),
            constraint=only_one_constraint(None, fields.grammar),
            logprobs=fields.logprobs,
            n=fields.n or 1,
            tier=tier_of(fields.service_tier),
            cache_prompt=fields.cache_prompt is not False,
        )
        for index, prompt in enumerate(prompts)
    ]


def _require_supported(fields: CompletionRequest) -> None:
    if fields.suffix:
        raise Unsupported(
            "suffix is not supported; put the model's own fill-in-the-middle tokens into the prompt.",
            param="suffix",
        )
    if fields.best_of is not None and fields.best_of != (fields.n or 1):
        raise Unsupported("best_of can only be the same as n.", param="best_of")
    if fields.echo and fields.logprobs is not None:
        raise Unsupported("echo cannot be combined with logprobs.", param="echo")


def _echoes(fields: CompletionRequest, requests: list[GenerationRequest], n: int) -> list[str]:
    """What stands before each choice's text when the prompt is to be repeated."""
    if not fields.echo:
        return []
    texts = []
    for request in requests:
        if not isinstance(request.prompt, TextPrompt):
            raise BadRequest("echo needs a prompt of text, not of token ids.", param="echo")
        texts.extend([request.prompt.text] * n)
    return texts
