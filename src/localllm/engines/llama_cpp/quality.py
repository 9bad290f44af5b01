"""How much a quant loses: perplexity and divergence from logits, summed up row by row.

Pure numpy: no model here. Rows are (n_vocab,) float32 logits as llama.cpp gives them; sums are float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = NDArray[np.float32]


def log_softmax(rows: Rows) -> NDArray[np.float32]:
    """(rows, n_vocab) natural-log probabilities; stable for any finite logits."""
    shifted = rows - rows.max(axis=1, keepdims=True)
    total = np.exp(shifted, dtype=np.float32).sum(axis=1, dtype=np.float64, keepdims=True)
    result: NDArray[np.float32] = shifted - np.log(total).astype(np.float32)
    return result


@dataclass
class Score:
    """The running figures of one model. Add rows in any number of calls; read the properties at the end."""

    losses: list[float] = field(default_factory=list)
    divergences: list[float] = field(default_factory=list)
    same_top: int = 0

    def add(self, log_probabilities: Rows, targets: NDArray[np.int32]) -> None:
        """Account for rows whose true next tokens are ``targets`` (rows,)."""
        self.losses += (-log_probabilities[np.arange(len(targets)), targets]).tolist()

    def compare(self, log_probabilities: Rows, reference: Rows) -> None:
        """Account for the divergence KL(reference || this) of each row, in nats; rounding may not make it negative."""
        per_row = (np.exp(reference) * (reference - log_probabilities)).sum(axis=1, dtype=np.float64)
        self.divergences += np.maximum(per_row, 0.0).tolist()
        self.same_top += int((log_probabilities.argmax(axis=1) == reference.argmax(axis=1)).sum())

    @property
    def perplexity(self) -> float:
        return math.exp(math.fsum(self.losses) / len(self.losses))

    @property
    def perplexity_error(self) -> float:
        """Standard error of the perplexity: that of the mean loss, carried through the exponential."""
        n = len(self.losses)
        if n < 2:
            return math.inf
        return self.perplexity * float(np.std(self.losses, ddof=1)) / math.sqrt(n)

    @property
    def mean_kld(self) -> float | None:
        return math.fsum(self.divergences) / len(self.divergences) if self.divergences else None

    @property
    def kld_p99(self) -> float | None:
        return float(np.percentile(self.divergences, 99)) if self.divergences else None

    @property
    def same_top_percent(self) -> float | None:
        return 100.0 * self.same_top / len(self.divergences) if self.divergences else None
