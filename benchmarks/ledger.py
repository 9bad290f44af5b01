"""What the ledger is promised for a model, beside what its process holds once it has answered.

    python -m benchmarks.ledger [--model FILE] [--json]

The demo model with f16 and q8_0 caches at three contexts on the llama_server engine; each figure is held over promised.
A figure and not a test: how much of the engine's own libraries counts as held depends on the state of the page cache.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import platformdirs

from benchmarks.support import Figure, Goal, figure, print_figures
from localllm.core.facts import facts_from_header
from localllm.core.generation import GenerationRequest, TextPrompt
from localllm.core.launch import LaunchPlan
from localllm.core.memory import HABITS, Estimator
from localllm.engines.llama_server.engine import LlamaServerEngine
from localllm.hub.demo import demo_model_path
from localllm.hub.gguf_file import read_header

CONTEXTS = (2048, 8192, 32768)
KV_TYPES = ("f16", "q8_0")


async def held_over_promised(model: Path, context_length: int, kv_type: str) -> float:
    """Load, answer once, and compare the process's resident bytes with the plan's total."""
    plan = LaunchPlan(
        model_path=str(model),
        context_length=context_length,
        threads=1,
        kv_type_k=kv_type,
        kv_type_v=kv_type,
        flash_attention="on",
    )
    facts = facts_from_header(read_header(model))
    promised = Estimator(facts, (), habits=HABITS["llama_server"]).estimate(plan).total_bytes
    with tempfile.TemporaryDirectory() as folder:
        instance = await LlamaServerEngine(log_dir=Path(folder)).load(plan, lambda progress: None)
        try:
            request = GenerationRequest(
                request_id="r", prompt=TextPrompt("Once upon a time " * 40), max_tokens=4
            )
            async for _ in instance.generate(request):
                pass
            held = (await instance.stats()).resident_bytes
        finally:
            await instance.unload()
    return (held or 0) / promised


async def measure(model: Path) -> list[Figure]:
    found = {
        f"ledger.{kv_type}_{context}": await held_over_promised(model, context, kv_type)
        for kv_type in KV_TYPES
        for context in CONTEXTS
    }
    worst = max(abs(ratio - 1) * 100 for ratio in found.values())
    return [
        figure("ledger.worst_error_percent", worst, "%", Goal("<=", 5)),
        *(figure(name, ratio, "held/promised") for name, ratio in found.items()),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a GGUF file; default: the demo model")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    model = options.model or demo_model_path(platformdirs.user_cache_path("localllm-benchmarks"))
    print_figures(
        asyncio.run(measure(model)), {"contexts": CONTEXTS, "kv_types": KV_TYPES}, as_json=options.json
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
