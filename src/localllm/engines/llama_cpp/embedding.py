"""Embeddings: a context of their own beside the one that generates, since pooling and logits exclude each other."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from localllm.core.errors import BadRequest, ContextLengthExceeded, GenerationFailed, LoadFailed
from localllm.core.launch import LaunchPlan
from localllm.engines.llama_cpp.llama import Context, Model

_SEQUENCES = 16
_TOGETHER = 512
"""Tokens computed at once where inputs are short: other requests get their turn in between."""
_LONGEST_INPUT = 8192
"""An input must fit one computation; the buffers for it grow with its length."""


class Embedder:
    """Pooled embeddings of texts and token lists."""

    def __init__(self, model: Model, plan: LaunchPlan) -> None:
        self._model = model
        self._longest = min(plan.context_length, _LONGEST_INPUT)
        pooling = plan.pooling
        if pooling is None and model.metadata(f"{model.architecture}.pooling_type") is None:
            pooling = "mean"  # a model that says nothing was not trained for it; the mean serves it best
        if pooling in ("none", "rank"):
            raise LoadFailed(f"Embeddings need one vector per text; the pooling {pooling!r} gives none.")
        sized = replace(plan, batch=self._longest, ubatch=self._longest, pooling=pooling, lora_paths=())
        self._context = Context(
            model,
            sized,
            sequences=_SEQUENCES,
            cells=self._longest,
            max_outputs=self._longest,
            embeddings=True,
        )

    def embed(
        self, inputs: Sequence[str | Sequence[int]]
    ) -> Generator[None, None, tuple[NDArray[np.float32], int]]:
        """Returns unit vectors, one row per input, and the tokens they took; yields after each computation.

        Raises:
            BadRequest: an input is empty or has a token id that does not exist.
            ContextLengthExceeded: an input is longer than one computation.
        """
        tokens = [self._tokens(text) for text in inputs]
        vectors = np.empty((len(tokens), self._model.n_embd), np.float32)
        for group in self._groups(tokens):
            self._compute(tokens, group, vectors)
            yield
        return vectors, sum(map(len, tokens))

    def _tokens(self, text: str | Sequence[int]) -> NDArray[np.int32]:
        if isinstance(text, str):
            text = self._model.tokenize(text, add_special=True, parse_special=False)
        ids = np.array(text, np.int64)
        if not len(ids) or ids.min() < 0 or ids.max() >= self._model.n_vocab:
            raise BadRequest("An input is empty, or has a token id that does not exist.", param="input")
        if len(ids) > self._longest:
            raise ContextLengthExceeded(len(ids), self._longest, param="input")
        return ids.astype(np.int32)

    def _groups(self, tokens: Sequence[NDArray[np.int32]]) -> Iterator[list[int]]:
        """Indices of inputs that are computed together."""
        group: list[int] = []
        room = _TOGETHER
        for index, ids in enumerate(tokens):
            if group and (len(ids) > room or len(group) == _SEQUENCES):
                yield group
                group, room = [], _TOGETHER
            group.append(index)
            room -= len(ids)
        if group:
            yield group

    def _compute(
        self, tokens: Sequence[NDArray[np.int32]], group: list[int], vectors: NDArray[np.float32]
    ) -> None:
        context = self._context
        context.clear()
        context.batch.clear()
        for sequence, index in enumerate(group):
            context.batch.put(sequence, tokens[index], 0, len(tokens[index]))
        status = context.decode()
        if status:
            raise GenerationFailed("llama.cpp could not compute the embedding.", details={"status": status})
        for sequence, index in enumerate(group):
            vector = context.embedding(sequence)
            length = float(np.linalg.norm(vector))
            if not np.isfinite(length):
                raise GenerationFailed("The model's output is not a number.")
            vectors[index] = vector / length if length else vector
