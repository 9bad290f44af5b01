"""Headers written for a simulation read back as they were."""

from __future__ import annotations

from localllm.core.gguf import Skipped, TensorInfo, Value, parse_header
from localllm.core.gguf_write import header_bytes
from tests.support.gguf_bytes import MemorySource


def test_what_is_written_reads_back() -> None:
    metadata: dict[str, Value] = {
        "general.name": "dropped",
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.rope.freq_base": 10_000.0,
        "llama.causal": True,
        "llama.attention.head_count_kv": (0, 2),
        "llama.pooling": "none",
        "llama.offset": -1,
        "llama.large": 1 << 40,
        "llama.skipped": Skipped(9),
        "tokenizer.ggml.tokens": Skipped(100),
    }
    tensors = [
        TensorInfo("token_embd.weight", (64, 100), "Q4_0", 123, 3600),
        TensorInfo("b", (7,), "F32", 4, 28),
    ]
    read = parse_header(MemorySource(header_bytes("llama", metadata, tensors, 100)), check_extent=False)
    assert read.metadata == {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "no_vocab",
        "llama.vocab_size": 100,
        "llama.block_count": 2,
        "llama.rope.freq_base": 10_000.0,
        "llama.causal": True,
        "llama.attention.head_count_kv": (0, 2),
        "llama.pooling": "none",
        "llama.offset": -1,
        "llama.large": 1 << 40,
    }
    assert [(t.name, t.shape, t.type, t.size_bytes) for t in read.tensors] == [
        ("token_embd.weight", (64, 100), "Q4_0", 3600),
        ("b", (7,), "F32", 28),
    ]
    assert read.tensors[1].offset == 3616
