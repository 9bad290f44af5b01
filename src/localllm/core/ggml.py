"""ggml's tensor types: how many bytes so many elements take. The ground every size in the planner stands on."""

from __future__ import annotations

from msgspec import Struct


class TensorType(Struct, frozen=True):
    """Elements are stored in blocks of ``block_elements`` that take ``block_bytes`` each."""

    name: str
    block_elements: int
    block_bytes: int

    @property
    def bits_per_weight(self) -> float:
        return self.block_bytes * 8 / self.block_elements

    def row_bytes(self, elements: int) -> int:
        """Bytes of one row; the caller sees to it that ``elements`` is a multiple of the block."""
        return elements // self.block_elements * self.block_bytes


#: By the number in the file (``enum ggml_type`` in ggml.h; block layouts in ggml-common.h). The numbers that are
#: missing were types llama.cpp has dropped.
TENSOR_TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 36),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),
    18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),
    30: TensorType("BF16", 1, 2),
    34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
    40: TensorType("NVFP4", 64, 36),
    41: TensorType("Q1_0", 128, 18),
    42: TensorType("Q2_0", 64, 18),
}

#: Types that were once written to files and that llama.cpp no longer loads.
DROPPED_TYPES: dict[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

BY_NAME: dict[str, TensorType] = {t.name: t for t in TENSOR_TYPES.values()}


def tensor_type(name: str) -> TensorType:
    """The type of this name, in either case (``q8_0``, ``Q8_0``).

    Raises:
        KeyError: there is no such type.
    """
    return BY_NAME[name.upper()]
