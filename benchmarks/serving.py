"""What the port costs: an answer through localllm against the same answer from llama.cpp's bare server.

    python -m benchmarks.serving --engine llama_server [--threads N] [--rounds N] [--policies] [--json]

Both serve the same model with the same threads and settings, each from a process of its own, and the same client asks
both. They are asked in turns, the order changing from round to round, so that what else happens on the machine meets
both alike; each figure is the median over pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx
import msgspec
import platformdirs

from benchmarks.support import Figure, Goal, figure, print_figures
from localllm.core.launch import LaunchPlan
from localllm.engines.llama_server.server_plan import HostPlan, HostReady
from localllm.hub.demo import demo_model_path
from localllm.hub.store import Store
from localllm.settings.identity import read_identity
from localllm.settings.paths import Paths, resolve_paths

CONTEXT_LENGTH = 1024
PARALLEL = 8
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
END_TOKENS = (1, 106, 212)
"""The demo model's: biased away, so that every answer has the length asked for."""
PROMPT = "Once upon a time in a small town by the river"
FIRST_TOKEN_PAIRS = 40
TOKENS = 24
"""Of an answer: short, so that a pair is taken within seconds, and many of them."""
GOALS = {
    "added_ttft_ms": Goal("<=", 3.0),
    "decode_ratio_1": Goal(">=", 0.98),
    "decode_ratio_8": Goal(">=", 0.97),
}


@dataclass
class Stream:
    """One answer: seconds since the request at each piece of text, and the tokens it had."""

    times_s: list[float] = field(default_factory=list)
    tokens: int = 0


class Subject:
    """One of the two servers, seen by an OpenAI client."""

    def __init__(self, http: httpx.AsyncClient, model: str) -> None:
        self._http = http
        self._model = model

    async def ask(self, prompt: str, tokens: int) -> Stream:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0,
            "logit_bias": {str(token): -100 for token in END_TOKENS},
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        stream = Stream()
        began_s = time.perf_counter()
        async with self._http.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise RuntimeError((await response.aread()).decode())
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line[6:])
                if chunk["choices"] and chunk["choices"][0]["delta"].get("content"):
                    stream.times_s.append(time.perf_counter() - began_s)
                if chunk.get("usage"):
                    stream.tokens = chunk["usage"]["completion_tokens"]
        if stream.tokens != tokens:
            raise RuntimeError(f"the answer has {stream.tokens} tokens instead of {tokens}")
        return stream


# ---------------------------------------------------------------- the two servers


@contextmanager
def bare_server(model: Path, threads: int) -> Iterator[httpx.AsyncClient]:
    """llama.cpp's server from the xllamacpp wheel, set up as the engine sets it up, asked directly."""
    plan = LaunchPlan(
        model_path=str(model),
        context_length=CONTEXT_LENGTH,
        parallel=PARALLEL,
        threads=threads,
        chat_template=TEMPLATE,
    )
    key = "benchmark"
    command = [sys.executable, "-m", "localllm.engines.llama_server.host"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(msgspec.json.encode(HostPlan(plan, key)) + b"\n")
        host.stdin.flush()
        ready = msgspec.json.decode(host.stdout.readline(), type=HostReady)
        yield _client(ready.address, {"Authorization": f"Bearer {key}"})
        host.stdin.close()


@contextmanager
def service(
    model: Path,
    threads: int,
    engine: str,
    home: Path,
    *,
    context_length: int = CONTEXT_LENGTH,
    template: str = TEMPLATE,
) -> Iterator[httpx.AsyncClient]:
    """localllm's port, with the model loaded."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("LOCALLLM_")}
    env |= {"LOCALLLM_HOME": str(home)}
    paths = resolve_paths(env)
    Store(paths.store_dir).import_file(model, name="demo", mode="reference", chat_template=template)
    command = [sys.executable, "-m", "localllm"]
    with subprocess.Popen([*command, "serve", "--port", "0"], env=env, stdout=subprocess.DEVNULL) as process:
        try:
            address = _address(process, paths)
            options = ["--engine", engine, "--context", str(context_length), "--parallel", str(PARALLEL)]
            subprocess.run(
                [*command, "load", "demo", *options, "--threads", str(threads)],
                env=env,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            yield _client(address, {})
        finally:
            process.terminate()


def _client(address: str, headers: Mapping[str, str]) -> httpx.AsyncClient:
    """A connection for each request: the bare server closes idle ones at moments of its own."""
    return httpx.AsyncClient(
        base_url=address,
        headers={**headers, "Connection": "close"},
        limits=httpx.Limits(max_keepalive_connections=0),
        timeout=600,
        trust_env=False,
    )


def _address(process: subprocess.Popen[bytes], paths: Paths) -> str:
    for _ in range(600):
        identity = read_identity(paths)
        if identity is not None and identity.pid == process.pid:
            return f"http://{identity.host}:{identity.port}"
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with exit code {process.returncode}")
        time.sleep(0.05)
    raise TimeoutError("the service did not start")


@dataclass(frozen=True)
class Pair:
    port: Subject
    bare: Subject

    async def in_turns(
        self, rounds: int, take: Callable[[Subject], Awaitable[float]]
    ) -> list[tuple[float, float]]:
        """(port, bare) of each round; who goes first alternates."""
        found = []
        for index in range(rounds):
            if index % 2:
                bare, port = await take(self.bare), await take(self.port)
            else:
                port, bare = await take(self.port), await take(self.bare)
            found.append((port, bare))
        return found


@asynccontextmanager
async def both(model: Path, threads: int, engine: str) -> AsyncIterator[Pair]:
    with (
        TemporaryDirectory(prefix="localllm-benchmark-", ignore_cleanup_errors=True) as home,
        bare_server(model, threads) as bare,
        service(model, threads, engine, Path(home)) as port,
    ):
        async with bare, port:
            pair = Pair(Subject(port, "demo"), Subject(bare, "demo"))
            for subject in (pair.port, pair.bare):
                await subject.ask(PROMPT, 8)
            yield pair


# ---------------------------------------------------------------- figures


async def first_token_ms(subject: Subject) -> float:
    """The prompt is in the cache of both, so that what remains is one decode and the way there."""
    return (await subject.ask(PROMPT, 2)).times_s[0] * 1000


async def tokens_per_second(subject: Subject, streams: int, tokens: int) -> float:
    """Of all streams together, from the moment the last of them began to the moment the first of them ended."""
    prompts = [f"{PROMPT}, number {index}" for index in range(streams)]
    answers = await asyncio.gather(*(subject.ask(prompt, tokens) for prompt in prompts))
    began_s = max(answer.times_s[0] for answer in answers)
    ended_s = min(answer.times_s[-1] for answer in answers)
    pieces = sum(began_s < at_s <= ended_s for answer in answers for at_s in answer.times_s)
    return pieces / (ended_s - began_s)


def _ratio(pairs: list[tuple[float, float]]) -> float:
    return median(port / bare for port, bare in pairs)


async def measure(
    model: Path, *, engine: str, threads: int, rounds: int
) -> tuple[list[Figure], dict[str, object]]:
    async with both(model, threads, engine) as pair:
        ttft = await pair.in_turns(FIRST_TOKEN_PAIRS, first_token_ms)
        one = await pair.in_turns(rounds * 2, lambda subject: tokens_per_second(subject, 1, TOKENS))
        eight = await pair.in_turns(rounds, lambda subject: tokens_per_second(subject, 8, TOKENS))
    values = {
        "added_ttft_ms": median(port - bare for port, bare in ttft),
        "decode_ratio_1": _ratio(one),
        "decode_ratio_8": _ratio(eight),
    }
    units = {"added_ttft_ms": "ms", "decode_ratio_1": "ratio", "decode_ratio_8": "ratio"}
    figures = [figure(f"{engine}.{name}", value, units[name], GOALS[name]) for name, value in values.items()]
    bare = {"bare_ttft_ms": ttft, "bare_tokens_per_second_1": one, "bare_tokens_per_second_8": eight}
    for name, pairs in bare.items():
        unit = "ms" if name.endswith("_ms") else "tokens/s"
        figures.append(figure(f"{engine}.{name}", median(bare for _, bare in pairs), unit))
    runs: dict[str, object] = {
        "threads": threads,
        "context_length": CONTEXT_LENGTH,
        "parallel": PARALLEL,
        "pairs": {"ttft_ms": ttft, "tokens_per_second_1": one, "tokens_per_second_8": eight},
    }
    return figures, runs


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", default="llama_server", choices=["llama_server", "llama_cpp"])
    parser.add_argument("--model", type=Path, help="a GGUF file; default: the demo model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--policies", action="store_true", help="what the port's policies cost instead")
    options = parser.parse_args()
    model = options.model or demo_model_path(platformdirs.user_cache_path("localllm-benchmarks"))
    take = measure
    if options.policies:
        from benchmarks.policies import measure as take  # it builds on this module
    figures, runs = asyncio.run(
        take(model, engine=options.engine, threads=options.threads, rounds=options.rounds)
    )
    print_figures(figures, runs, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
