"""What the loopback hub serves in tests of pulling: a tiny real model in two quantisations, a split one, a projector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from localllm.core.control import FitTable
from localllm.core.facts import ModelFacts
from localllm.core.recommend import fit_table
from localllm.hardware.simulate import simulate
from tests.support.loopback_hub import LoopbackHub
from tests.support.split_gguf import split
from tests.support.tiny_gguf import write_tiny_gguf

OLLAMA_LAYERS = {
    "library/tiny:latest": {"model": "tiny-F16.gguf", "params": "params", "license": "LICENSE"},
    "library/odd:latest": {"model": "odd.gguf"},
    "library/adapted:latest": {"model": "tiny-F16.gguf", "adapter": "params"},
}


def hub_files(folder: Path) -> dict[str, bytes | Path]:
    """Files by name; written to ``folder`` once."""
    folder.mkdir(parents=True, exist_ok=True)
    f32 = write_tiny_gguf(folder / "tiny-F32.gguf", "llama")
    f16 = write_tiny_gguf(folder / "tiny-F16.gguf", "llama", weights="f16")
    odd = folder / "odd.gguf"
    gemma = write_tiny_gguf(folder / "gemma.gguf", "gemma3", weights="f16")
    odd.write_bytes(gemma.read_bytes().replace(b"gemma3", b"gptoss"))
    parts = split(f32, folder / "BF16")
    return {
        "tiny-F32.gguf": f32,
        "tiny-F16.gguf": f16,
        "mmproj-tiny-F16.gguf": b"GGUF a projector",
        "BF16/big-BF16-00001-of-00002.gguf": parts[0],
        "BF16/big-BF16-00002-of-00002.gguf": parts[1],
        "odd.gguf": odd,
        "params": json.dumps({"stop": ["<end>"], "temperature": 0.7, "num_ctx": 4096}).encode(),
        "LICENSE": b"\n  MIT License\n\nPermission is hereby granted",
    }


def loopback_hub(folder: Path) -> LoopbackHub:
    return LoopbackHub(hub_files(folder), layers=OLLAMA_LAYERS)


def recommend(facts: ModelFacts, sizes: Mapping[str, int]) -> FitTable:
    """The planner on a machine where anything small fits."""
    return fit_table(facts, simulate("RTX 4090"), model="tiny", here={}, listed=sizes)
