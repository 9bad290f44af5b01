"""The demo model as planned and as loaded: what each engine logs is what the plan said, to the rounding of the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localllm.core.facts import facts_from_header
from localllm.core.launch import LaunchPlan
from localllm.core.memory import HABITS, Estimator
from localllm.core.units import MIB
from localllm.engines.base import Engine
from localllm.engines.llama_cpp.engine import LlamaCppEngine
from localllm.engines.llama_server.engine import LlamaServerEngine
from localllm.hub.gguf_file import read_header

ROUNDING = 0.02 * MIB
"""Logs have two decimals, and the inputs of a batch (positions, rows) are not planned for."""

EngineMaker = Callable[..., Engine]


@pytest.mark.parametrize(
    ("maker", "name"),
    [
        pytest.param(LlamaServerEngine, "llama_server"),
        pytest.param(LlamaCppEngine, "llama_cpp", marks=pytest.mark.llama_cpp),
    ],
)
@pytest.mark.parametrize(("context", "parallel"), [(2048, 1), (4096, 2)])
async def test_the_plan_is_what_the_engine_allocates(
    maker: EngineMaker, name: str, context: int, parallel: int, demo_model: Path, tmp_path: Path
) -> None:
    plan = LaunchPlan(
        model_path=str(demo_model), context_length=context, parallel=parallel, ubatch=256, threads=1
    )
    facts = facts_from_header(read_header(demo_model))
    planned = Estimator(facts, (), habits=HABITS[name]).estimate(plan)
    engine = maker(log_dir=tmp_path)
    instance = await engine.load(plan, lambda progress: None)
    try:
        logged: dict[str, int] = {}
        for buffer in instance.info.buffers:
            if "REPACK" not in buffer.device:  # a copy whose original leaves the memory
                logged[buffer.kind] = logged.get(buffer.kind, 0) + buffer.bytes
    finally:
        await instance.unload()
        await engine.close()
    assert logged["kv"] == planned.kv_bytes
    assert logged["compute"] == pytest.approx(planned.compute_bytes, abs=ROUNDING)
    assert logged["weights"] == pytest.approx(planned.weights_bytes, abs=ROUNDING)
