"""What a GGUF header does not say: which layers of an architecture slide, share or recur.

llama.cpp knows these by the architecture's name; so must the planner. Everything that a header does say is read in
``facts``. Source: each architecture's ``load_arch_hparams`` in llama.cpp's src/models.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class SlidingWindow(Struct, frozen=True):
    """Layer i slides unless it is the last of its ``period`` (the first with ``dense_first``); period 0 = all slide.

    ``window`` is used when the header gives none (None = then the model has no sliding window), or always when it is
    ``fixed``. ``only_layers``: other sizes of the family do not slide.
    """

    period: int
    window: int | None = None
    dense_first: bool = False
    fixed: bool = False
    only_layers: int | None = None

    def slides(self, layer: int) -> bool:
        if self.period == 0:
            return True
        return layer % self.period != 0 if self.dense_first else layer % self.period < self.period - 1


SLIDING_WINDOWS: Final[dict[str, SlidingWindow]] = {
    "afmoe": SlidingWindow(4),
    "cohere2": SlidingWindow(4, 4096),
    "cohere2moe": SlidingWindow(4, 4096),
    "exaone-moe": SlidingWindow(4),
    "exaone4": SlidingWindow(4, only_layers=64),
    "gemma-embedding": SlidingWindow(6),
    "gemma2": SlidingWindow(2, 4096),
    "gemma3": SlidingWindow(6),
    "gemma3n": SlidingWindow(5),
    "gemma4": SlidingWindow(6),
    "gpt-oss": SlidingWindow(2),
    "llama4": SlidingWindow(4, 8192),
    "mellum": SlidingWindow(4),
    "mimo2": SlidingWindow(6),
    "modern-bert": SlidingWindow(3, dense_first=True),
    "olmo2": SlidingWindow(4),
    "plamo3": SlidingWindow(8),
    "smallthinker": SlidingWindow(4, 4096, dense_first=True, fixed=True),
    "step35": SlidingWindow(4),
}

#: Recurrent in every layer: no key-value cache at all.
RECURRENT: Final = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})

#: A state and a cache in every layer.
RECURRENT_AND_ATTENTION: Final = frozenset({"falcon-h1"})

#: Layers without key-value heads keep a recurrent state instead.
HYBRID_BY_HEADS: Final = frozenset({"granitehybrid", "jamba", "kimi-linear", "lfm2", "lfm2moe", "plamo2"})

#: A layer is one thing only: without heads and without a feed-forward it keeps a state.
HYBRID_BY_KIND: Final = frozenset({"nemotron_h", "nemotron_h_moe"})

#: Every nth layer attends, the others recur (header key ``full_attention_interval``, else 4).
HYBRID_BY_INTERVAL: Final = frozenset({"qwen35", "qwen35moe", "qwen3next", "qwen4exp"})

#: Encoders: no cache, whole batch at once.
ENCODERS: Final = frozenset(
    {
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "t5encoder",
    }
)

#: Diffusion models compute the whole text at every step.
DIFFUSION: Final = frozenset({"dream", "llada", "llada-moe", "rnd1"})

#: Layers that keep a cache of their own when the header does not say how many share (gemma3n: fixed in the code).
OWN_CACHE_LAYERS: Final[dict[str, int]] = {"gemma3n": 20}

#: Attention over a compressed latent when the header has the ``_mla`` head sizes: one key row, no values.
LATENT_ATTENTION: Final = frozenset(
    {"deepseek2", "deepseek2-ocr", "deepseek32", "glm-dsa", "kimi-linear", "mistral4", "minicpm3", "plm"}
)


def recurrent_layers(
    architecture: str, head_count_kv: tuple[int, ...], feed_forward: tuple[int, ...], interval: int
) -> tuple[bool, ...]:
    """Per layer: does it keep a recurrent state? The tuples have one entry per layer."""
    count = len(head_count_kv)
    if architecture in RECURRENT or architecture in RECURRENT_AND_ATTENTION:
        return (True,) * count
    if architecture in HYBRID_BY_HEADS:
        return tuple(heads == 0 for heads in head_count_kv)
    if architecture in HYBRID_BY_KIND:
        return tuple(heads == width == 0 for heads, width in zip(head_count_kv, feed_forward, strict=True))
    if architecture in HYBRID_BY_INTERVAL:
        return tuple((layer + 1) % interval != 0 for layer in range(count))
    return (False,) * count
