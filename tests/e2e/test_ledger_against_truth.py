"""What the ledger was promised for a model, beside what its process holds once it has answered: within 5 %."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localllm.core.facts import facts_from_header
from localllm.core.generation import GenerationRequest, TextPrompt
from localllm.core.launch import LaunchPlan
from localllm.core.memory import HABITS, Estimator
from localllm.engines.llama_server.engine import LlamaServerEngine
from localllm.hub.gguf_file import read_header

pytestmark = [
    pytest.mark.real_model,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts mapped weights as resident"),
]
TOLERANCE = 0.05


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("context_length", [2048, 8192, 32768])
async def test_a_model_takes_what_it_was_promised(
    demo_model: Path, tmp_path: Path, context_length: int, kv_type: str
) -> None:
    plan = LaunchPlan(
        model_path=str(demo_model),
        context_length=context_length,
        threads=1,
        kv_type_k=kv_type,
        kv_type_v=kv_type,
        flash_attention="on",
    )
    facts = facts_from_header(read_header(demo_model))
    promised = Estimator(facts, (), habits=HABITS["llama_server"]).estimate(plan).total_bytes
    engine = LlamaServerEngine(log_dir=tmp_path)
    instance = await engine.load(plan, lambda progress: None)
    try:
        prompt = TextPrompt("Once upon a time " * 40)
        async for _ in instance.generate(GenerationRequest(request_id="r", prompt=prompt, max_tokens=4)):
            pass
        held = (await instance.stats()).resident_bytes
    finally:
        await instance.unload()
    assert held == pytest.approx(promised, rel=TOLERANCE)
