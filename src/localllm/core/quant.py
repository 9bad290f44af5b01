"""Quantisations by name: what a file's type number means, how many bits a weight takes, how much quality it costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from localllm.core.gguf import TensorInfo

#: ``general.file_type`` (``enum llama_ftype`` in llama.h); 1024 is added when the type was guessed.
FILE_TYPES: Final[dict[int, str]] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}


def dominant_type(tensors: Iterable[TensorInfo]) -> str:
    """The tensor type that most weights have; ``unknown`` for a file without tensors."""
    weights: Counter[str] = Counter()
    for tensor in tensors:
        weights[tensor.type] += math.prod(tensor.shape)
    return weights.most_common(1)[0][0] if weights else "unknown"


#: Bits per weight of a whole file, all tensors counted (Llama-3.1-8B; smaller models are a little above).
BITS_PER_WEIGHT: Final[dict[str, float]] = {
    "F32": 32.0,
    "F16": 16.0,
    "BF16": 16.0,
    "Q8_0": 8.5,
    "Q6_K": 6.56,
    "Q5_1": 6.0,
    "Q5_K_M": 5.70,
    "Q5_K_S": 5.57,
    "Q5_0": 5.57,
    "Q4_1": 5.12,
    "Q4_K_M": 4.89,
    "Q4_K_S": 4.67,
    "Q4_0": 4.64,
    "IQ4_NL": 4.68,
    "IQ4_XS": 4.46,
    "MXFP4_MOE": 4.4,
    "NVFP4": 4.6,
    "Q3_K_L": 4.30,
    "Q3_K_M": 4.00,
    "IQ3_M": 3.76,
    "IQ3_S": 3.66,
    "Q3_K_S": 3.64,
    "IQ3_XS": 3.50,
    "IQ3_XXS": 3.25,
    "Q2_K": 3.16,
    "Q2_K_S": 2.97,
    "IQ2_M": 2.93,
    "IQ2_S": 2.73,
    "IQ2_XS": 2.59,
    "IQ2_XXS": 2.38,
    "IQ1_M": 2.15,
    "IQ1_S": 2.01,
    "TQ2_0": 2.4,
    "TQ1_0": 2.1,
}


class Quality(Struct, frozen=True):
    """``mean_kld`` in nats against the 16-bit model; None = nobody has published it for this type."""

    words: str
    mean_kld: float | None
    source: str


_MEASURED = (
    "mean KL divergence, Llama-3-8B on wikitext (llama.cpp, tools/quantize/README and perplexity/README)"
)
_JUDGED = "by its neighbours in bits per weight"

QUALITY: Final[dict[str, Quality]] = {
    "F32": Quality("the original", 0.0, "by definition"),
    "F16": Quality("the original", 0.0, "by definition"),
    "BF16": Quality("the original", 0.0, "by definition"),
    "Q8_0": Quality("indistinguishable", 0.0014, _MEASURED),
    "Q6_K": Quality("near lossless", 0.0055, _MEASURED),
    "Q5_K_M": Quality("very good", 0.011, _MEASURED),
    "Q5_K_S": Quality("very good", 0.013, _JUDGED),
    "Q5_1": Quality("very good", None, _JUDGED),
    "Q5_0": Quality("very good", None, _JUDGED),
    "Q4_K_M": Quality("good", 0.031, _MEASURED),
    "IQ4_XS": Quality("good", 0.036, _MEASURED),
    "IQ4_NL": Quality("good", 0.036, _JUDGED),
    "Q4_K_S": Quality("good", 0.043, _MEASURED),
    "Q4_1": Quality("fair", None, _JUDGED),
    "Q4_0": Quality("fair", 0.072, _MEASURED),
    "MXFP4_MOE": Quality("as trained", None, "the model was published in this type"),
    "NVFP4": Quality("good", None, _JUDGED),
    "Q3_K_L": Quality("visible loss", 0.09, _JUDGED),
    "Q3_K_M": Quality("visible loss", 0.10, _MEASURED),
    "IQ3_M": Quality("visible loss", None, _JUDGED),
    "IQ3_S": Quality("visible loss", None, _JUDGED),
    "Q3_K_S": Quality("strong loss", None, _JUDGED),
    "IQ3_XS": Quality("strong loss", None, _JUDGED),
    "IQ3_XXS": Quality("strong loss", None, _JUDGED),
    "Q2_K": Quality("heavy loss, not advised", 0.45, _MEASURED),
    "Q2_K_S": Quality("heavy loss, not advised", None, _JUDGED),
    "IQ2_M": Quality("heavy loss, not advised", None, _JUDGED),
}
_WORST = Quality("heavy loss, not advised", None, _JUDGED)


def quality_of(quant: str) -> Quality | None:
    """What is known about this quant's quality; dynamic mixes (``UD-…``) count as the mix they are named after."""
    name = base_name(quant)
    if name in QUALITY:
        return QUALITY[name]
    return _WORST if BITS_PER_WEIGHT.get(name, 99.0) < 3.0 else None


def base_name(quant: str) -> str:
    """``UD-Q4_K_XL`` → ``Q4_K_M``, ``q8_0`` → ``Q8_0``: the plain mix a name is a variant of."""
    name = quant.upper().removeprefix("UD-")
    if name in BITS_PER_WEIGHT:
        return name
    if name == "MXFP4":
        return "MXFP4_MOE"
    stem = name.removesuffix("_XL").removesuffix("_L").removesuffix("_M")
    return next((c for c in (stem + "_M", stem) if c in BITS_PER_WEIGHT), name)
