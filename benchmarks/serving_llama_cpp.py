"""What the llama_cpp engine gains and costs, against a bare loop over llama_decode and llama.cpp's own server.

    python -m benchmarks.serving_llama_cpp [--threads N] [--rounds N] [--only NAME] [--json]

The engine is asked through the port, everything included; what it counts inside (steps, prefilled tokens, its own
time) is read from a second one without a port. All run the same model with the same threads, each in a process of its
own; they are asked in turns, and each figure is the median over rounds, since a shared machine's speed drifts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import platformdirs
import psutil

from benchmarks.serving import service
from benchmarks.support import Figure, Goal, figure, print_figures
from localllm.core.generation import GenerationRequest, Sampling, TextDelta, TextPrompt, Usage
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Instance, InstanceStats
from localllm.engines.llama_cpp.engine import LlamaCppEngine
from localllm.hub.demo import demo_model_path

CONTEXT_LENGTH = 4096
PARALLEL = 8
GREEDY = Sampling(temperature=0)
PASS_THROUGH = "{% for m in messages %}{{ m.content }}{% endfor %}"
_SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "min_p", "seed", "repeat_penalty")
_ENDS = (1, 106, 212)
"""The demo model's end tokens: biased away, so that every answer has the length asked for."""
_WORDS = (
    *(
        "time",
        "person",
        "year",
        "way",
        "day",
        "thing",
        "man",
        "world",
        "life",
        "hand",
        "part",
        "child",
        "eye",
    ),
    *("woman", "place", "work", "week", "case", "point", "company", "number", "group", "problem", "fact"),
    *(
        "water",
        "money",
        "story",
        "month",
        "lot",
        "study",
        "book",
        "word",
        "business",
        "issue",
        "side",
        "kind",
    ),
    *(
        "head",
        "house",
        "service",
        "friend",
        "father",
        "power",
        "hour",
        "game",
        "line",
        "end",
        "member",
        "law",
    ),
)


@dataclass
class Stream:
    """One answer: seconds from the request to each piece of text, and what came of it."""

    times: list[float] = field(default_factory=list)
    text: str = ""
    tokens: int = 0
    cached: int = 0
    accepted: int = 0
    seconds: float = 0.0


Figures = dict[str, float]


def words(seed: int, count: int) -> str:
    """``count`` common words, about as many tokens, in an order of their own."""
    source = random.Random(seed)
    return " ".join(source.choice(_WORDS) for _ in range(count))


# ---------------------------------------------------------------- the three subjects


class EngineSubject:
    """The engine without a port."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance

    async def ask(
        self, prompt: str, tokens: int, sampling: Sampling = GREEDY, *, prediction: str | None = None
    ) -> Stream:
        request = GenerationRequest(
            request_id="benchmark",
            prompt=TextPrompt(prompt),
            max_tokens=tokens,
            sampling=sampling,
            prediction=prediction,
        )
        stream = Stream()
        began = time.perf_counter()
        async for event in self.instance.generate(request):
            if isinstance(event, TextDelta):
                stream.times.append(time.perf_counter() - began)
                stream.text += event.text
            elif isinstance(event, Usage):
                stream.tokens = event.completion_tokens
                stream.cached = event.cached_tokens
                stream.accepted = event.accepted_prediction_tokens
        stream.seconds = time.perf_counter() - began
        return stream

    async def stats(self) -> InstanceStats:
        return await self.instance.stats()


class PortSubject:
    """The engine behind localllm's port, asked as an OpenAI client asks; the template passes text through."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(
        self, prompt: str, tokens: int, sampling: Sampling = GREEDY, *, prediction: str | None = None
    ) -> Stream:
        fields = {name: getattr(sampling, name) for name in _SAMPLING_FIELDS}
        body = {
            "model": "demo",
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "logit_bias": {str(token): bias for token, bias in sampling.logit_bias.items()},
            **{name: value for name, value in fields.items() if value is not None},
        }
        if prediction is not None:
            body["prediction"] = {"type": "content", "content": prediction}
        stream = Stream()
        began = time.perf_counter()
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise RuntimeError((await response.aread()).decode())
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    self._read(json.loads(line[6:]), stream, time.perf_counter() - began)
        stream.seconds = time.perf_counter() - began
        return stream

    def _read(self, chunk: dict[str, Any], stream: Stream, at: float) -> None:
        if chunk["choices"] and (text := chunk["choices"][0]["delta"].get("content")):
            stream.times.append(at)
            stream.text += text
        if usage := chunk.get("usage"):
            stream.tokens = usage["completion_tokens"]
            stream.cached = usage["prompt_tokens_details"]["cached_tokens"]
            stream.accepted = usage["completion_tokens_details"]["accepted_prediction_tokens"]


class ServerSubject:
    """llama.cpp's server, asked over HTTP."""

    def __init__(self, http: httpx.AsyncClient, pid: int) -> None:
        self._http = http
        self.pid = pid

    async def ask(self, prompt: str, tokens: int, sampling: Sampling = GREEDY) -> Stream:
        body = {
            "prompt": prompt,
            "n_predict": tokens,
            "stream": True,
            "ignore_eos": True,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k or 40,
            "top_p": sampling.top_p or 0.95,
            "min_p": sampling.min_p or 0.05,
        }
        stream = Stream()
        began = time.perf_counter()
        async with self._http.stream("POST", "/completion", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    chunk = json.loads(line[6:])
                    if chunk.get("content"):
                        stream.times.append(time.perf_counter() - began)
                        stream.text += chunk["content"]
                    stream.tokens = chunk.get("tokens_predicted", stream.tokens)
        stream.seconds = time.perf_counter() - began
        return stream


class LoopSubject:
    """The bare loop; it only knows how to decode."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def rate(self, prompts: Sequence[str], tokens: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"prompts": list(prompts), "tokens": tokens}).encode() + b"\n")
        answer = json.loads(await self._process.stdout.readline())
        return float(answer["tokens_per_second"])


@asynccontextmanager
async def bare_process(
    module: str, model: Path, threads: int
) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, str]]]:
    """A yardstick's process and the line it said when it was ready."""
    arguments = [str(model), "--threads", str(threads), "--context-length", str(CONTEXT_LENGTH)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments, "--parallel", str(PARALLEL)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process, json.loads(await process.stdout.readline())
    finally:
        process.kill()
        await process.wait()


@dataclass
class Subjects:
    port: PortSubject
    engine: EngineSubject
    server: ServerSubject
    loop: LoopSubject


@asynccontextmanager
async def open_subjects(model: Path, threads: int) -> AsyncIterator[Subjects]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="localllm-benchmark-"))
        plan = LaunchPlan(
            model_path=str(model), context_length=CONTEXT_LENGTH, parallel=PARALLEL, threads=threads
        )
        instance = await LlamaCppEngine(log_dir=Path(folder) / "log").load(plan, lambda progress: None)
        stack.push_async_callback(instance.unload)
        loop, _ = await stack.enter_async_context(bare_process("benchmarks.bare_loop", model, threads))
        process, server = await stack.enter_async_context(
            bare_process("benchmarks.bare_server", model, threads)
        )
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=server["address"], timeout=600))
        port = stack.enter_context(
            service(
                model,
                threads,
                "llama_cpp",
                Path(folder) / "home",
                context_length=CONTEXT_LENGTH,
                template=PASS_THROUGH,
            )
        )
        await stack.enter_async_context(port)
        yield Subjects(
            PortSubject(port), EngineSubject(instance), ServerSubject(http, process.pid), LoopSubject(loop)
        )


# ---------------------------------------------------------------- figures


async def rate(asked: Sequence[Awaitable[Stream]]) -> float:
    """Tokens per second of the streams together, while all of them decode."""
    streams = await asyncio.gather(*asked)
    began = max(stream.times[0] for stream in streams)
    ended = min(stream.times[-1] for stream in streams)
    pieces = sum(sum(began < at <= ended for at in stream.times) for stream in streams)
    return pieces / (ended - began)


@dataclass(frozen=True)
class Decoding:
    """Prompts that are decoded side by side, ``tokens`` each."""

    prompts: tuple[str, ...]
    tokens: int

    async def by(self, subject: PortSubject | EngineSubject | ServerSubject, sampling: Sampling) -> float:
        return await rate([subject.ask(prompt, self.tokens, sampling) for prompt in self.prompts])


async def decoding(subjects: Subjects, rounds: int) -> Figures:
    """Greedy and sampled decoding at one and at eight streams, in many short turns."""
    figures: Figures = {}
    bias = dict.fromkeys(_ENDS, -100.0)
    greedy = Sampling(temperature=0, logit_bias=bias)
    sampled = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=1, logit_bias=bias)
    for streams, tokens in {1: 48, 8: 24}.items():
        task = Decoding(tuple(f"{words(index, 6)}. Once upon a time" for index in range(streams)), tokens)
        for name, sampling in (("greedy", greedy), ("sampled", sampled)):
            turns = [await _decoding_turn(subjects, task, sampling) for _ in range(3 * rounds)]
            figures |= {
                f"{name}_{streams}_tokens_per_second": median(port for port, _, _ in turns),
                f"loop_beside_{name}_{streams}_tokens_per_second": median(loop for _, loop, _ in turns),
                f"server_{name}_{streams}_tokens_per_second": median(server for _, _, server in turns),
                f"vs_loop_{streams}_{name}": median(port / loop for port, loop, _ in turns),
                f"decode_ratio_{streams}_{name}": median(port / server for port, _, server in turns),
            }
        costs = [await _processor_turn(subjects, task, greedy) for _ in range(rounds)]
        for name, values in zip(_COSTS, zip(*costs, strict=True), strict=True):
            figures[f"{name}_{streams}"] = median(values)
    return figures


async def _decoding_turn(
    subjects: Subjects, task: Decoding, sampling: Sampling
) -> tuple[float, float, float]:
    """Tokens per second of the port, the bare loop and the bare server, one right after the other."""
    loop = await subjects.loop.rate(task.prompts, task.tokens)
    port = await task.by(subjects.port, sampling)
    return port, loop, await task.by(subjects.server, sampling)


_COSTS = ("processor_time_vs_loop", "processor_time_vs_server", "scheduler_us_per_token")


async def _processor_turn(
    subjects: Subjects, task: Decoding, sampling: Sampling
) -> tuple[float, float, float]:
    """Processor time of loop and server over that of the engine's worker for the same tokens, and the scheduler's own.

    A wall clock says mostly what others do on a busy machine; this says what we do.
    """
    before = await subjects.engine.stats()
    engine = await _processor_seconds(subjects.engine.instance.info.pid, task.by(subjects.engine, sampling))
    after = await subjects.engine.stats()
    loop = await _processor_seconds(subjects.loop.pid, subjects.loop.rate(task.prompts, task.tokens))
    server = await _processor_seconds(subjects.server.pid, task.by(subjects.server, sampling))
    return loop / engine, server / engine, _scheduler_us(before, after)


async def _processor_seconds(pid: int | None, task: Awaitable[float]) -> float:
    process = psutil.Process(pid)
    before = sum(process.cpu_times()[:2])
    await task
    return float(sum(process.cpu_times()[:2]) - before)


def _scheduler_us(before: InstanceStats, after: InstanceStats) -> float:
    """Microseconds per token and sequence that were neither the model nor sampling."""

    def grown(name: str) -> float:
        return float(getattr(after, name)) - float(getattr(before, name))

    own = grown("step_seconds_total") - grown("model_seconds_total") - grown("sampling_seconds_total")
    return own * 1e6 / grown("completion_tokens_total")


async def shared_prefix(subjects: Subjects, rounds: int) -> Figures:
    """Eight clients at once with the same prefix of about 1,100 tokens."""
    speedups, seen, prefilled, cached_parts = [], [], [], []
    for index in range(rounds):
        prefix = words(1000 + index, 1090)
        prompts = [f"{prefix} {words(5000 + 10 * index + client, 9)}" for client in range(8)]
        total = sum([await subjects.engine.instance.count_tokens(TextPrompt(p)) for p in prompts])
        tails = 8 * 10
        before = await subjects.engine.stats()
        await asyncio.gather(*(subjects.engine.ask(prompt, 1) for prompt in prompts))
        after = await subjects.engine.stats()
        ours = await asyncio.gather(*(subjects.port.ask(prompt, 4) for prompt in prompts))
        theirs = await asyncio.gather(*(subjects.server.ask(prompt, 4) for prompt in prompts))
        speedups.append(median(s.times[0] for s in theirs) / median(s.times[0] for s in ours))
        computed = (after.prefilled_tokens_total or 0) - (before.prefilled_tokens_total or 0)
        prefilled.append(computed / (total / 8 + tails - 10))
        again_ours = await subjects.port.ask(prompts[0], 4)
        again_theirs = await subjects.server.ask(prompts[0], 4)
        seen.append(again_ours.times[0] / again_theirs.times[0])
        cached_parts.append(again_ours.cached / (total / 8))
    return {
        "shared_prefix_ttft_speedup": median(speedups),
        "shared_prefix_prefilled_ratio": median(prefilled),
        "prefix_seen_before_cached_ratio": median(cached_parts),
        "prefix_seen_before_ttft_ratio": median(seen),
    }


async def smoothness(subjects: Subjects, rounds: int) -> Figures:
    """Gaps between tokens of four streams, alone and while a prompt of 1,000 tokens arrives."""

    async def p95(long_prompt: str | None) -> tuple[float, float]:
        asked = [subjects.port.ask(f"{words(k, 5)}. Once upon a time", 100) for k in range(4)]
        if long_prompt is not None:
            asked.append(_later(0.5, subjects.port.ask(long_prompt, 2)))
        streams = await asyncio.gather(*asked)
        gaps = [b - a for s in streams[:4] for a, b in zip(s.times[4:], s.times[5:], strict=False)]
        return quantiles(gaps, n=20)[18], streams[-1].times[0]

    ratios, ttfts = [], []
    for index in range(rounds):
        quiet, _ = await p95(None)
        busy, ttft = await p95(words(7000 + index, 1000))
        ratios.append(busy / quiet)
        ttfts.append(ttft)
    return {"itl_p95_under_prefill_ratio": median(ratios), "prefill_beside_4_ttft_s": median(ttfts)}


async def _later(seconds: float, asked: Awaitable[Stream]) -> Stream:
    await asyncio.sleep(seconds)
    return await asked


async def prediction(subjects: Subjects, rounds: int) -> Figures:
    """A file that is repeated with a few edits, and a prediction that is of no use."""
    source = "\n".join(
        f"def convert_{name}(value, scale={at % 7}):\n    total = value * scale + {at * 37 % 101}\n    return total\n"
        for at, name in enumerate(_WORDS[:10])
    )
    prompt = f"The file again, exactly as it is:\n\n{source}\n\nThe file again, exactly as it is:\n\n"
    plain_prompt = "The history of the small town by the river begins"
    gains, fewer, losses, same = [], [], [], []
    for index in range(rounds):
        plain = await subjects.port.ask(prompt, 220)
        edited = plain.text.replace("scale + 37", "scale - 38").replace("convert_day", "change_day")
        helped = await subjects.port.ask(prompt, 220, prediction=edited)
        gains.append(plain.seconds / helped.seconds)
        same.append(float(helped.text == plain.text))
        lively = Sampling(
            temperature=1.0, repeat_penalty=1.2, seed=index
        )  # a text that does not repeat itself
        free = await subjects.port.ask(plain_prompt, 150, lively)
        useless = await subjects.port.ask(plain_prompt, 150, lively, prediction=words(index, 300))
        losses.append((useless.seconds / useless.tokens) / (free.seconds / free.tokens))
        before = (await subjects.engine.stats()).steps_total or 0
        await subjects.engine.ask(prompt, 220)
        middle = (await subjects.engine.stats()).steps_total or 0
        await subjects.engine.ask(prompt, 220, prediction=edited)
        after = (await subjects.engine.stats()).steps_total or 0
        fewer.append((middle - before) / (after - middle))
    return {
        "prediction_step_reduction": median(fewer),
        "prediction_speedup": median(gains),
        "prediction_useless_slowdown": median(losses),
        "prediction_identical": min(same),
    }


FIGURES: dict[str, Callable[[Subjects, int], Awaitable[Figures]]] = {
    "decoding": decoding,
    "shared_prefix": shared_prefix,
    "smoothness": smoothness,
    "prediction": prediction,
}


GOALS = {
    **{f"vs_loop_1_{kind}": Goal(">=", 0.95) for kind in ("greedy", "sampled")},
    **{f"vs_loop_8_{kind}": Goal(">=", 0.92) for kind in ("greedy", "sampled")},
    **{f"decode_ratio_1_{kind}": Goal(">=", 1.08) for kind in ("greedy", "sampled")},
    **{f"decode_ratio_8_{kind}": Goal(">=", 1.25) for kind in ("greedy", "sampled")},
    "scheduler_us_per_token_8": Goal("<=", 60),
    "shared_prefix_ttft_speedup": Goal(">=", 7),
    "shared_prefix_prefilled_ratio": Goal("<=", 1.1),
    "prefix_seen_before_cached_ratio": Goal(">=", 0.98),
    "prefix_seen_before_ttft_ratio": Goal("<=", 1),
    "itl_p95_under_prefill_ratio": Goal("<=", 2.5),
    "prediction_step_reduction": Goal(">=", 3),
    "prediction_speedup": Goal(">=", 1.7),
    "prediction_useless_slowdown": Goal("<=", 1.1),
    "prediction_identical": Goal(">=", 1),
}


def _unit(name: str) -> str:
    if name.endswith("_tokens_per_second"):
        return "tokens/s"
    if "_us_per_token_" in name:
        return "us"
    return "s" if name.endswith("_s") else "ratio"


async def measure(
    model: Path, *, threads: int, rounds: int, only: Sequence[str] = ()
) -> tuple[list[Figure], dict[str, object]]:
    """All figures (or those named in ``only``) with ``threads`` threads; medians of ``rounds``."""
    figures: list[Figure] = []
    async with open_subjects(model, threads) as subjects:
        for subject in (subjects.port, subjects.engine, subjects.server):
            await subject.ask("warm up", 4)
        for name, take in FIGURES.items():
            if not only or name in only:
                for key, value in (await take(subjects, rounds)).items():
                    figures.append(figure(f"llama_cpp.{key}", value, _unit(key), GOALS.get(key)))
    runs: dict[str, object] = {
        "threads": threads,
        "rounds": rounds,
        "context_length": CONTEXT_LENGTH,
        "parallel": PARALLEL,
    }
    return figures, runs


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a GGUF file; default: the demo model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", default=[], choices=sorted(FIGURES))
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    model = options.model or demo_model_path(platformdirs.user_cache_path("localllm-benchmarks"))
    figures, runs = asyncio.run(
        measure(model, threads=options.threads, rounds=options.rounds, only=options.only)
    )
    print_figures(figures, runs, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
