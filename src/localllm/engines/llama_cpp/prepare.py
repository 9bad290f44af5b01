"""From a request to a job the scheduler can run: template, tokens, limits, sampler, grammar, parser.

This runs on the worker's command thread while the model thread computes, so a long prompt or a slow template holds up
nobody. Everything a request can have wrong is found here, before any event.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localllm.core.errors import BadRequest, ContextLengthExceeded, Unsupported
from localllm.core.generation import ChatPrompt, GenerationRequest, Prompt, TextPrompt
from localllm.core.launch import LaunchPlan
from localllm.engines.llama_cpp.answer import Answer, Job
from localllm.engines.llama_cpp.constraint import forced_call, to_gbnf
from localllm.engines.llama_cpp.grammar_probe import GrammarProbe
from localllm.engines.llama_cpp.llama import GrammarMask, Model
from localllm.engines.llama_cpp.parsers import Family, OutputParser, family_of, make_parser
from localllm.engines.llama_cpp.pool import MemoryKind
from localllm.engines.llama_cpp.prediction import Predictor
from localllm.engines.llama_cpp.sampling import AfterMarker, Mask, Sampler, resolve
from localllm.engines.llama_cpp.template import ChatTemplate, open_template

_UNCAPPED_RESERVE = 1024
"""Room kept for an answer whose caller gave no cap: its real cap is the whole context, which would let nobody else in."""
_MODEL_DEFAULTS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}
"""llama.cpp's ``general.sampling.*`` metadata: what the model's makers recommend."""
_DRY_BREAKS = frozenset('\n:"*')


@dataclass(frozen=True)
class _Prepared:
    """A prompt as tokens, and how its answer is to be read."""

    tokens: list[int]
    opens_reasoning: bool = False


class Preparer:
    """Builds jobs for one loaded model. ``context_length`` is what one sequence gets."""

    def __init__(self, model: Model, plan: LaunchPlan, *, context_length: int, kind: MemoryKind) -> None:
        self._model = model
        self._plan = plan
        self._context_length = context_length
        self._kind = kind
        self._probe = GrammarProbe()
        self._end_tokens = model.end_tokens()
        self._defaults = _model_defaults(model)
        self.template: ChatTemplate = open_template(
            model.chat_template(),
            plan.chat_template,
            bos_token=model.bos_piece(),
            eos_token=model.eos_piece(),
        )
        self._family = family_of(self.template.text)

    def close(self) -> None:
        self._probe.close()

    def count(self, prompt: Prompt) -> int:
        """Tokens this prompt takes."""
        return len(self._tokens(prompt).tokens)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of token ids; special tokens are shown. Bytes that are no text become U+FFFD."""
        self._known(tokens)
        pieces = (self._model.piece(token, special=True) for token in tokens)
        return b"".join(pieces).decode("utf-8", "replace")

    def job(self, number: int, request: GenerationRequest) -> Job:
        """A job with its answers, ready to be submitted.

        Raises:
            ContextLengthExceeded: the prompt leaves no room for one token.
            BadRequest, BadTemplate, BadGrammar, Unsupported: with the field at fault.
        """
        arrived = time.monotonic()
        if not self._model.generates:
            raise Unsupported("This model makes embeddings; it cannot write text.", param="model")
        self._check(request)
        prepared = self._tokens(request.prompt)
        prompt = np.array(prepared.tokens, np.int32)
        if not len(prompt):
            raise BadRequest(
                "The prompt is empty, and this model has no token to begin with.", param="prompt"
            )
        if len(prompt) >= self._context_length:
            param = "messages" if isinstance(request.prompt, ChatPrompt) else "prompt"
            raise ContextLengthExceeded(len(prompt), self._context_length, param=param)
        gbnf = self._grammar(request, prepared.opens_reasoning)
        job = Job(number, request, prepared.tokens, context_length=self._context_length, arrived=arrived)
        job.answers = [self._answer(job, choice, prompt, prepared, gbnf) for choice in range(request.n)]
        return job

    # ------------------------------------------------------------ the prompt

    def _tokens(self, prompt: Prompt) -> _Prepared:
        model = self._model
        if isinstance(prompt, ChatPrompt):
            rendered = self.template.render(prompt)
            text = rendered.text
            if model.adds_bos:
                text = text.removeprefix(model.bos_piece())
            tokens = model.tokenize(text, add_special=True, parse_special=True)
            return _Prepared(tokens, rendered.opens_reasoning)
        if isinstance(prompt, TextPrompt):
            return _Prepared(model.tokenize(prompt.text, add_special=True, parse_special=True))
        self._known(prompt.tokens)
        return _Prepared(list(prompt.tokens))

    def _known(self, tokens: Iterable[int], param: str = "prompt") -> None:
        last = self._model.n_vocab - 1
        if any(not 0 <= token <= last for token in tokens):
            raise BadRequest(f"A token id is not in 0…{last}.", param=param)

    # ------------------------------------------------------------ the answer

    def _check(self, request: GenerationRequest) -> None:
        if request.n < 1 or (request.max_tokens is not None and request.max_tokens < 1):
            raise BadRequest(
                "n and max_tokens must be at least 1.", param="n" if request.n < 1 else "max_tokens"
            )
        self._known(request.sampling.logit_bias, "logit_bias")
        tools = isinstance(request.prompt, ChatPrompt) and request.prompt.tools
        if tools and request.constraint is not None:
            raise Unsupported("An answer format and tools cannot be used together.", param="response_format")
        if request.prediction is None:
            return
        beside = {"n": request.n > 1, "logprobs": request.logprobs is not None, "tools": bool(tools)}
        for name, used in beside.items():
            if used:
                raise Unsupported(f"prediction cannot be used together with {name}.", param="prediction")
        if self._kind is MemoryKind.EXACT:
            raise Unsupported(
                "This model's memory cannot be cut back, which checking a prediction needs.",
                param="prediction",
            )

    def _grammar(self, request: GenerationRequest, opens_reasoning: bool) -> str | None:
        """The grammar the answer must follow, compiled once where it may crash."""
        gbnf = None
        prompt = request.prompt
        if request.constraint is not None:
            gbnf = to_gbnf(request.constraint)
        elif isinstance(prompt, ChatPrompt) and prompt.tools and prompt.tool_choice == "required":
            gbnf = forced_call(
                self._family,
                prompt.tools,
                template=self.template.text,
                parallel=prompt.parallel_tool_calls,
                opens_reasoning=opens_reasoning,
            )
        if gbnf is not None:
            self._probe.check(gbnf)
        return gbnf

    def _answer(
        self, job: Job, choice: int, prompt: NDArray[np.int32], prepared: _Prepared, gbnf: str | None
    ) -> Answer:
        request = job.request
        room = self._context_length - len(prompt)
        cap = min(request.max_tokens or room, room)
        seed = request.sampling.seed
        sampler = Sampler(
            resolve(request.sampling, self._defaults),
            seed=None if seed is None else seed + choice,
            bias=request.sampling.logit_bias,
            history=prepared.tokens,
            grammar=self._mask(request, gbnf, prepared.opens_reasoning) if gbnf is not None else None,
            breaks=self._breaks_repetition,
        )
        return Answer(
            job,
            choice,
            prompt,
            limit=len(prompt) + cap,
            reserve=len(prompt) + (cap if request.max_tokens else min(cap, _UNCAPPED_RESERVE)),
            sampler=sampler,
            vocabulary=self._model,
            end_tokens=self._end_tokens,
            parser=self._parser(request, prepared.opens_reasoning),
            predictor=self._predictor(request, prepared.tokens),
            stops=self._stops(request),
        )

    def _mask(self, request: GenerationRequest, gbnf: str, opens_reasoning: bool) -> Mask:
        """The compiled grammar. A format binds only the answer behind a thought; a forced call's brings its thought."""
        mask = GrammarMask(self._model, gbnf)
        harmony = self._family is Family.HARMONY and isinstance(request.prompt, ChatPrompt)
        if request.constraint is None or not (opens_reasoning or harmony):
            return mask
        marker = b"final<|message|>" if harmony else b"</think>"
        return AfterMarker(mask, marker, lambda token: self._model.piece(token, special=True))

    def _parser(self, request: GenerationRequest, opens_reasoning: bool) -> OutputParser | None:
        prompt = request.prompt
        if not isinstance(prompt, ChatPrompt):
            return None
        tools = prompt.tools if prompt.tool_choice != "none" else ()
        forced = prompt.tool_choice == "required" and self._family is Family.GEMMA
        return make_parser(Family.GENERIC if forced else self._family, tools, opens_reasoning=opens_reasoning)

    def _predictor(self, request: GenerationRequest, prompt: list[int]) -> Predictor | None:
        if request.prediction is not None:
            tokens = self._model.tokenize(request.prediction, add_special=False, parse_special=False)
            return Predictor(tokens, prompt)
        if self._plan.prompt_lookup and self._kind is not MemoryKind.EXACT and request.logprobs is None:
            return Predictor((), prompt)
        return None

    def _stops(self, request: GenerationRequest) -> tuple[str, ...]:
        stops = (*request.stop, *self._plan.stop)
        return (*stops, *self.template.stop) if isinstance(request.prompt, ChatPrompt) else stops

    def _breaks_repetition(self, token: int) -> bool:
        return not _DRY_BREAKS.isdisjoint(self._model.piece(token, special=False).decode("utf-8", "replace"))


def _model_defaults(model: Model) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, name in _MODEL_DEFAULTS.items():
        text = model.metadata(f"general.sampling.{key}")
        if text is not None:
            try:
                found[name] = float(text)
            except ValueError:
                continue  # a damaged recommendation is no reason not to serve the model
    return found
