"""The limit the llama_cpp engine is measured against: a plain Python loop over llama_decode, no service around it.

A process of its own: reads one JSON object a line (``streams``, ``tokens``), decodes that many sequences side by side
with numpy argmax on llama.cpp's logits, and answers with the decode rate. It uses nothing of localllm.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time

import llama_cpp.llama_cpp as native
import numpy as np


class Loop:
    """One context, as many sequences as asked for."""

    def __init__(self, model_path: str, *, threads: int, context_length: int, parallel: int) -> None:
        self._keep_quiet = native.llama_log_callback(lambda level, text, data: None)
        native.llama_log_set(self._keep_quiet, ctypes.c_void_p(0))
        native.llama_backend_init()
        self._model = native.llama_model_load_from_file(
            model_path.encode(), native.llama_model_default_params()
        )
        self._vocab = native.llama_model_get_vocab(self._model)
        self._n_vocab = native.llama_vocab_n_tokens(self._vocab)
        parameters = native.llama_context_default_params()
        parameters.n_ctx = context_length * parallel
        parameters.n_seq_max = parallel
        parameters.n_batch, parameters.n_ubatch = 2048, 512
        parameters.n_outputs_max = parallel
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.swa_full = False
        parameters.kv_unified = True
        self._context = native.llama_init_from_model(self._model, parameters)
        self._memory = native.llama_get_memory(self._context)
        self._batch = native.llama_batch_init(2048, 0, 1)
        self._ends = [t for t in range(self._n_vocab) if native.llama_vocab_is_eog(self._vocab, t)]

    def run(self, prompts: list[str], tokens: int) -> dict[str, float]:
        """Decode ``tokens`` tokens for each prompt; tokens per second after the first ones."""
        native.llama_memory_clear(self._memory, True)
        newest = [self._prefill(sequence, self._tokenize(text)) for sequence, text in enumerate(prompts)]
        positions = [len(self._tokenize(text)) for text in prompts]
        began = time.perf_counter()
        for _ in range(tokens - 1):
            for sequence, token in enumerate(newest):
                self._put(sequence, sequence, token, positions[sequence], True)
                positions[sequence] += 1
            self._batch.n_tokens = len(newest)
            assert native.llama_decode(self._context, self._batch) == 0
            newest = [self._best(row) for row in range(len(newest))]
        seconds = time.perf_counter() - began
        return {"tokens_per_second": (tokens - 1) * len(prompts) / seconds}

    def _prefill(self, sequence: int, tokens: list[int]) -> int:
        for index, token in enumerate(tokens):
            self._put(index, sequence, token, index, index == len(tokens) - 1)
        self._batch.n_tokens = len(tokens)
        assert native.llama_decode(self._context, self._batch) == 0
        return self._best(len(tokens) - 1)

    def _put(self, row: int, sequence: int, token: int, position: int, wanted: bool) -> None:
        batch = self._batch
        batch.token[row], batch.pos[row], batch.logits[row] = token, position, wanted
        batch.n_seq_id[row], batch.seq_id[row][0] = 1, sequence

    def _best(self, row: int) -> int:
        pointer = native.llama_get_logits_ith(self._context, row)
        logits = np.ctypeslib.as_array(pointer, (self._n_vocab,))
        logits[self._ends] = -np.inf
        return int(logits.argmax())

    def _tokenize(self, text: str) -> list[int]:
        data = text.encode()
        found = (ctypes.c_int32 * (len(data) + 8))()
        count = native.llama_tokenize(self._vocab, data, len(data), found, len(found), True, False)
        return list(found[:count])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--context-length", type=int, default=4096)
    parser.add_argument("--parallel", type=int, default=8)
    options = parser.parse_args()
    loop = Loop(
        options.model,
        threads=options.threads,
        context_length=options.context_length,
        parallel=options.parallel,
    )
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(loop.run(asked["prompts"], asked["tokens"])), flush=True)


if __name__ == "__main__":
    main()
