"""What the measuring processes are asked and what they answer: plain structs, shared by both sides.

``bench`` times a model, ``evaluate`` compares quants of one model on a text, ``tune`` finds the fastest settings. All run in a process of their own
(``python -m localllm.engines.llama_cpp.lab_worker``), which prints one JSON object a line: progress, then the result.
"""

from __future__ import annotations

from msgspec import Struct

from localllm.core.launch import LaunchPlan


class BenchRequest(Struct, frozen=True, kw_only=True, tag="bench"):
    """llama-bench's measure: ``prompt_tokens`` prefilled at once, ``generated_tokens`` decoded one by one.

    Both begin ``depth`` tokens deep. ``plan.context_length`` must hold depth plus the longer of the two.
    """

    plan: LaunchPlan
    prompt_tokens: int = 512
    generated_tokens: int = 128
    depth: int = 0
    repetitions: int = 3


class EvalRequest(Struct, frozen=True, kw_only=True, tag="eval"):
    """Compare models on ``text``: the first plan is the reference. All must share one vocabulary.

    The text is cut into windows of ``window_tokens``; the second half of each is scored, as llama-perplexity does.
    """

    plans: tuple[LaunchPlan, ...]
    text: str
    window_tokens: int = 512
    max_windows: int = 16


class TuneRequest(Struct, frozen=True, kw_only=True, tag="tune"):
    """Find the fastest threads and ubatch for ``plan``; ``threads`` are the candidates (empty = chosen by processors)."""

    plan: LaunchPlan
    threads: tuple[int, ...] = ()
    rounds: int = 3


class Advance(Struct, frozen=True, tag="advance"):
    """``done`` of ``total`` steps; ``label`` says what is going on."""

    done: int
    total: int
    label: str


class BenchResult(Struct, frozen=True, kw_only=True, tag="bench_result"):
    """Tokens per second of each repetition; ``engine_version`` is llama-cpp-python's."""

    prefill_tokens_per_second: tuple[float, ...]
    decode_tokens_per_second: tuple[float, ...]
    engine_version: str
    load_seconds: float


class ModelQuality(Struct, frozen=True, kw_only=True):
    """One model's loss on the text.

    ``perplexity`` with its standard error; against the reference, per scored token: Kullback-Leibler divergence of the
    next-token distributions (nats; mean and 99th percentile), and how often both would pick the same token.
    """

    model_path: str
    perplexity: float
    perplexity_error: float
    mean_kld: float | None = None
    kld_p99: float | None = None
    same_top_percent: float | None = None


class EvalResult(Struct, frozen=True, kw_only=True, tag="eval_result"):
    models: tuple[ModelQuality, ...]
    scored_tokens: int
    windows: int
    engine_version: str


class Trial(Struct, frozen=True):
    """One candidate and its median speed."""

    value: int
    tokens_per_second: float


class TuneResult(Struct, frozen=True, kw_only=True, tag="tune_result"):
    """What to use, and every candidate that was tried."""

    threads: int
    batch_threads: int
    ubatch: int
    decode: tuple[Trial, ...]
    prefill: tuple[Trial, ...]
    ubatches: tuple[Trial, ...]
    engine_version: str


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    code: str
    message: str
    hint: str | None = None
    param: str | None = None


Request = BenchRequest | EvalRequest | TuneRequest
Answer = Advance | BenchResult | EvalResult | TuneResult | Failed
