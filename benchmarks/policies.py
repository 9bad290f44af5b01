"""What the port's policies cost: the same service and model, asked with a key that has them on and one that has none.

    python -m benchmarks.serving --policies [--engine llama_server] [--threads N] [--rounds N] [--json]

Every prompt is new, so that no answer comes from the cache and each is kept in it. The content rules are plain words, as
most are; any other regular expression holds a stream back by design (``service/gateway/content_rules.py``).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx

from benchmarks.serving import PROMPT, TOKENS, Pair, Subject, service
from benchmarks.support import Figure, Goal, figure
from localllm.settings.identity import read_admin_key
from localllm.settings.paths import resolve_paths

ON = {
    "requests_per_minute": 1_000_000,
    "tokens_per_minute": 1_000_000_000,
    "concurrent_requests": 1000,
    "daily_tokens": 1_000_000_000,
    "max_output_tokens": 4096,
    "models": ["demo"],
    "tier": "priority",
    "cache": True,
    "mask_pii": True,
    "blocked_patterns": ["words that no story has", "nor this one"],
    "audit": True,
}
GOALS = {
    "added_ttft_ms": Goal("<=", 1.5),
    "decode_ratio_1": Goal(">=", 0.98),
    "cache_hit_ms": Goal("<=", 5.0),
}
PAIRS = 40


async def measure(
    model: Path, *, engine: str, threads: int, rounds: int
) -> tuple[list[Figure], dict[str, object]]:
    numbers = itertools.count()

    async def first_token_ms(subject: Subject) -> float:
        return (await subject.ask(f"{PROMPT}, number {next(numbers)}", 2)).times_s[0] * 1000

    async def tokens_per_second(subject: Subject) -> float:
        times_s = (await subject.ask(f"{PROMPT}, number {next(numbers)}", TOKENS)).times_s
        return (len(times_s) - 1) / (times_s[-1] - times_s[0])

    async with on_and_off(model, threads, engine) as pair:
        ttft = await pair.in_turns(PAIRS, first_token_ms)
        decode = await pair.in_turns(rounds * 2, tokens_per_second)
        hits = [await _hit_ms(pair.port) for _ in range(PAIRS)]
    values = {
        "added_ttft_ms": (median(on - off for on, off in ttft), "ms"),
        "decode_ratio_1": (median(on / off for on, off in decode), "ratio"),
        "cache_hit_ms": (median(hits), "ms"),
    }
    figures = [figure(f"policies.{name}", value, unit, GOALS[name]) for name, (value, unit) in values.items()]
    return figures, {"engine": engine, "threads": threads, "ttft_ms": ttft, "tokens_per_second": decode}


@asynccontextmanager
async def on_and_off(model: Path, threads: int, engine: str) -> AsyncIterator[Pair]:
    """One service, asked as the key with every policy (``port``) and as the one without (``bare``)."""
    with (
        TemporaryDirectory(prefix="localllm-benchmark-", ignore_cleanup_errors=True) as home,
        service(model, threads, engine, Path(home)) as port,
    ):
        admin = {"authorization": f"Bearer {read_admin_key(resolve_paths({'LOCALLLM_HOME': home}))}"}
        async with port:
            subjects = []
            for name, rules in (("on", ON), ("off", {})):
                made = await port.post("/localllm/keys", json={"name": name, "rules": rules}, headers=admin)
                headers = {"authorization": f"Bearer {made.raise_for_status().json()['key']}"}
                subjects.append(httpx.AsyncClient(base_url=port.base_url, headers=headers, timeout=120))
            async with subjects[0] as on, subjects[1] as off:
                pair = Pair(Subject(on, "demo"), Subject(off, "demo"))
                for subject in (pair.port, pair.bare):
                    await subject.ask(PROMPT, 8)
                yield pair


async def _hit_ms(subject: Subject) -> float:
    """The answer to the prompt of the warm-up, from memory, to its end."""
    began_s = time.perf_counter()
    await subject.ask(PROMPT, 8)
    return (time.perf_counter() - began_s) * 1000
