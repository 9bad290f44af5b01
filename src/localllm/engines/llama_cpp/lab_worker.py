"""The measuring process: one request on standard input, JSON lines on standard output, then it ends.

It is apart from the serving worker because it loads several models at once and may be killed at any time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import assert_never

import msgspec
import numpy as np
from numpy.typing import NDArray

from localllm.core.errors import BadRequest, GenerationFailed, LocalLLMError
from localllm.core.launch import LaunchPlan
from localllm.engines.llama_cpp import llama
from localllm.engines.llama_cpp.lab_request import (
    Advance,
    Answer,
    BenchRequest,
    BenchResult,
    EvalRequest,
    EvalResult,
    Failed,
    ModelQuality,
    Request,
    TuneRequest,
)
from localllm.engines.llama_cpp.quality import Score, log_softmax
from localllm.engines.llama_cpp.tune import tune

SCORED_ROWS = 64

Tell = Callable[[Answer], None]


def bench(request: BenchRequest, tell: Tell) -> BenchResult:
    """Time prefill and decode of one model, after a warm-up of each."""
    with ExitStack() as stack:
        begun = time.perf_counter()
        model = llama.Model(request.plan)
        stack.callback(model.free)
        load_seconds = time.perf_counter() - begun
        cells = request.depth + max(request.prompt_tokens, request.generated_tokens) + 8
        context = llama.Context(model, request.plan, sequences=1, cells=cells, max_outputs=1)
        stack.callback(context.free)
        tokens = np.random.default_rng(0).integers(0, model.n_vocab, cells, dtype=np.int32)
        total = 2 * (request.repetitions + 1)

        def timed(label: str, count: int, step: int) -> tuple[float, ...]:
            rates: list[float] = []
            for repetition in range(request.repetitions + 1):
                tell(Advance(len(steps), total, label))
                steps.append(label)
                context.clear()
                _feed(context, tokens[: request.depth], 0, context.max_batch)
                started = time.perf_counter()
                _feed(context, tokens[:count], request.depth, step)
                if repetition:  # the first one warms caches and pages
                    rates.append(count / (time.perf_counter() - started))
            return tuple(rates)

        steps: list[str] = []
        prefill = timed("prefill", request.prompt_tokens, context.max_batch)
        decode = timed("decode", request.generated_tokens, 1)
        return BenchResult(
            prefill_tokens_per_second=prefill,
            decode_tokens_per_second=decode,
            engine_version=llama.version(),
            load_seconds=load_seconds,
        )


def evaluate(request: EvalRequest, tell: Tell) -> EvalResult:
    """Score every model on the same windows of the text, row against row with the first.

    Raises:
        BadRequest: the text is shorter than one window, or the models do not share a vocabulary.
    """
    with ExitStack() as stack:
        models: list[llama.Model] = []
        for plan in request.plans:
            tell(Advance(0, 1, f"loading {len(models) + 1} of {len(request.plans)}"))
            model = llama.Model(plan)
            stack.callback(model.free)
            models.append(model)
        windows = _windows(models, request)
        contexts = [
            _scoring_context(m, p, request.window_tokens) for m, p in zip(models, request.plans, strict=True)
        ]
        for context in contexts:
            stack.callback(context.free)
        scores = [Score() for _ in models]
        for index, window in enumerate(windows):
            tell(Advance(index, len(windows), "scoring"))
            _score_window(contexts, scores, window)
        return EvalResult(
            models=tuple(_quality(p, s) for p, s in zip(request.plans, scores, strict=True)),
            scored_tokens=len(scores[0].losses),
            windows=len(windows),
            engine_version=llama.version(),
        )


def _windows(models: Sequence[llama.Model], request: EvalRequest) -> list[NDArray[np.int32]]:
    tokenised = [m.tokenize(request.text, add_special=False, parse_special=False) for m in models]
    if any(tokens != tokenised[0] for tokens in tokenised) or len({m.n_vocab for m in models}) > 1:
        raise BadRequest(
            "These models do not share one vocabulary; compare quants of one model.", param="models"
        )
    size = request.window_tokens
    count = min(len(tokenised[0]) // size, request.max_windows)
    if count == 0:
        raise BadRequest(
            f"The text has {len(tokenised[0])} tokens; one window takes {size}.",
            hint="Give a longer text, or a smaller window.",
            param="text",
        )
    first = models[0].tokenize("", add_special=True, parse_special=False)
    windows = np.array(tokenised[0][: count * size], np.int32).reshape(count, size)
    if first:
        windows[:, 0] = first[0]
    return list(windows)


def _scoring_context(model: llama.Model, plan: LaunchPlan, window: int) -> llama.Context:
    return llama.Context(model, plan, sequences=1, cells=window, max_outputs=SCORED_ROWS)


def _score_window(
    contexts: Sequence[llama.Context], scores: Sequence[Score], window: NDArray[np.int32]
) -> None:
    half = len(window) // 2
    for context in contexts:
        context.clear()
        _feed(context, window[:half], 0, context.max_batch)
    for start in range(half, len(window) - 1, SCORED_ROWS):
        tokens = window[start : min(start + SCORED_ROWS, len(window) - 1)]
        targets = window[start + 1 : start + 1 + len(tokens)]
        reference: NDArray[np.float32] | None = None
        for context, score in zip(contexts, scores, strict=True):
            context.batch.clear()
            context.batch.put(0, tokens, start, len(tokens))
            _decode(context)
            found = log_softmax(context.logits(len(tokens))[: len(tokens)])
            score.add(found, targets)
            if reference is None:
                reference = found
            else:
                score.compare(found, reference)


def _quality(plan: LaunchPlan, score: Score) -> ModelQuality:
    return ModelQuality(
        model_path=plan.model_path,
        perplexity=score.perplexity,
        perplexity_error=score.perplexity_error,
        mean_kld=score.mean_kld,
        kld_p99=score.kld_p99,
        same_top_percent=score.same_top_percent,
    )


def _feed(context: llama.Context, tokens: NDArray[np.int32], position: int, step: int) -> None:
    """Decode ``tokens`` in batches of ``step``, logits of the last one of each batch."""
    for start in range(0, len(tokens), step):
        part = tokens[start : start + step]
        context.batch.clear()
        context.batch.put(0, part, position + start, 1)
        _decode(context)


def _decode(context: llama.Context) -> None:
    status = context.decode()
    if status != 0:
        raise GenerationFailed(f"llama.cpp could not decode (status {status}).")


def _serve(request: Request, tell: Tell) -> Answer:
    match request:
        case BenchRequest():
            return bench(request, tell)
        case EvalRequest():
            return evaluate(request, tell)
        case TuneRequest():
            return tune(request, tell)
        case _:
            assert_never(request)


def main() -> int:
    """Serve one request. Exit code 0 with a result, 1 with a ``Failed`` line."""
    encoder = msgspec.json.Encoder()

    def tell(answer: Answer) -> None:
        sys.stdout.buffer.write(encoder.encode(answer) + b"\n")
        sys.stdout.buffer.flush()

    llama.log_to_stderr()
    try:
        tell(_serve(msgspec.json.decode(sys.stdin.buffer.read(), type=Request), tell))
    except LocalLLMError as error:
        tell(Failed(code=error.code, message=error.message, hint=error.hint, param=error.param))
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
