"""What the way through localllm to Ollama costs, against Ollama asked directly.

    python -m benchmarks.serving_ollama [--ollama PATH] [--threads N] [--rounds N] [--json]

One daemon with one loaded model serves both, so nothing differs but the way: the port against Ollama's native API. They
are asked in turns, the order changing from round to round; each figure is the median over pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx
import platformdirs

from benchmarks.serving import Pair, Stream, Subject, service
from benchmarks.support import Figure, Goal, figure, print_figures
from localllm.hub.demo import demo_model_path

CONTEXT_LENGTH = 1024
FIRST_TOKEN_PAIRS = 40
TOKENS = 24
PROMPT = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,"
"""The demo model counts on from here, so that no answer ends before it has its tokens."""
GOALS = {"added_ttft_ms": Goal("<=", 5.0), "decode_ratio_1": Goal(">=", 0.98)}


class ThroughPort(Subject):
    """localllm's port, asked without what Ollama has no word for."""

    async def ask(self, prompt: str, tokens: int) -> Stream:
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        stream = Stream()
        began_s = time.perf_counter()
        async with self._http.stream("POST", "/v1/completions", json=body) as response:
            await _require_ok(response)
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line[6:])
                if chunk["choices"] and chunk["choices"][0]["text"]:
                    stream.times_s.append(time.perf_counter() - began_s)
                if chunk.get("usage"):
                    stream.tokens = chunk["usage"]["completion_tokens"]
        return _complete(stream, tokens)


class Direct(Subject):
    """Ollama's native API. ``options`` are those the model was loaded with; others would load it anew."""

    def __init__(self, http: httpx.AsyncClient, model: str, options: dict[str, object]) -> None:
        super().__init__(http, model)
        self._options = options

    async def ask(self, prompt: str, tokens: int) -> Stream:
        body = {
            "model": self._model,
            "prompt": prompt,
            "raw": True,
            "keep_alive": -1,
            "options": self._options | {"temperature": 0, "num_predict": tokens},
        }
        stream = Stream()
        began_s = time.perf_counter()
        async with self._http.stream("POST", "/api/generate", json=body) as response:
            await _require_ok(response)
            async for line in response.aiter_lines():
                chunk = json.loads(line)
                if chunk.get("response"):
                    stream.times_s.append(time.perf_counter() - began_s)
                if chunk["done"]:
                    stream.tokens = chunk["eval_count"]
        return _complete(stream, tokens)


async def _require_ok(response: httpx.Response) -> None:
    if response.status_code != httpx.codes.OK:
        raise RuntimeError((await response.aread()).decode())


def _complete(stream: Stream, tokens: int) -> Stream:
    if stream.tokens != tokens:
        raise RuntimeError(f"the answer has {stream.tokens} tokens instead of {tokens}")
    return stream


@contextmanager
def ollama(binary: str, models: Path) -> Iterator[str]:
    """A daemon with a store of its own; its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    env = os.environ | {"OLLAMA_HOST": f"127.0.0.1:{port}", "OLLAMA_MODELS": str(models), "HOME": str(models)}
    with subprocess.Popen(
        [binary, "serve"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@asynccontextmanager
async def both(binary: str, model: Path, threads: int) -> AsyncIterator[Pair]:
    with (
        TemporaryDirectory(prefix="localllm-benchmark-", ignore_cleanup_errors=True) as folder,
        ollama(binary, Path(folder) / "ollama") as address,
    ):
        # the service reads it; `load` waits until the daemon answers
        os.environ["OLLAMA_HOST"] = address
        async with httpx.AsyncClient(base_url=address, timeout=600, trust_env=False) as direct:
            await _up(direct)
            with service(
                model, threads, "ollama", Path(folder) / "home", context_length=CONTEXT_LENGTH
            ) as port:
                async with port:
                    resident = (await direct.get("/api/ps")).json()["models"][0]
                    options = {"num_ctx": resident["context_length"], "num_thread": threads}
                    pair = Pair(ThroughPort(port, "demo"), Direct(direct, resident["name"], options))
                    for subject in (pair.port, pair.bare):
                        await subject.ask(PROMPT, 8)
                    yield pair


async def _up(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.get("/api/version")
            except httpx.HTTPError:
                await asyncio.sleep(0.1)
            else:
                return


async def first_token_ms(subject: Subject) -> float:
    return (await subject.ask(PROMPT, 2)).times_s[0] * 1000


async def tokens_per_second(subject: Subject) -> float:
    times_s = (await subject.ask(PROMPT, TOKENS)).times_s
    return (len(times_s) - 1) / (times_s[-1] - times_s[0])


async def measure(
    binary: str, model: Path, *, threads: int, rounds: int
) -> tuple[list[Figure], dict[str, object]]:
    async with both(binary, model, threads) as pair:
        ttft = await pair.in_turns(FIRST_TOKEN_PAIRS, first_token_ms)
        decode = await pair.in_turns(rounds * 2, tokens_per_second)
    figures = [
        figure(
            "ollama.added_ttft_ms", median(port - bare for port, bare in ttft), "ms", GOALS["added_ttft_ms"]
        ),
        figure(
            "ollama.decode_ratio_1",
            median(port / bare for port, bare in decode),
            "ratio",
            GOALS["decode_ratio_1"],
        ),
        figure("ollama.bare_ttft_ms", median(bare for _, bare in ttft), "ms"),
        figure("ollama.bare_tokens_per_second_1", median(bare for _, bare in decode), "tokens/s"),
    ]
    runs: dict[str, object] = {
        "threads": threads,
        "context_length": CONTEXT_LENGTH,
        "pairs": {"ttft_ms": ttft, "tokens_per_second_1": decode},
    }
    return figures, runs


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ollama", help="the ollama program; default: LOCALLLM_TEST_OLLAMA, else on PATH")
    parser.add_argument("--model", type=Path, help="a GGUF file; default: the demo model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    binary = shutil.which(options.ollama or os.environ.get("LOCALLLM_TEST_OLLAMA") or "ollama")
    if binary is None:
        parser.error("there is no Ollama: name it with --ollama")
    model = options.model or demo_model_path(platformdirs.user_cache_path("localllm-benchmarks"))
    figures, runs = asyncio.run(measure(binary, model, threads=options.threads, rounds=options.rounds))
    print_figures(figures, runs, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
