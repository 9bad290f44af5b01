"""The process that lets llama.cpp size a model it does not have: ``python -m localllm.engines.llama_cpp.simulate_worker``.

Reads one JSON request per line from stdin and writes one JSON reply per line to stdout. A process of its own, since
llama.cpp aborts on headers it does not like and its log callback is global. No weights, no file, no GPU needed.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import llama_cpp.llama_cpp as native

from localllm.core.engine_log import parse_buffers, parse_cache_sizes

_TYPES: Final = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
_FLASH: Final = {"auto": -1, "off": 0, "on": 1}


class _InitParams(ctypes.Structure):
    """ggml's gguf.h, struct gguf_init_params."""

    _fields_ = [("no_alloc", ctypes.c_bool), ("context", ctypes.c_void_p)]


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever native code prints must not be taken for a reply
    lines: list[str] = []

    def collect(level: int, text: bytes, user: object) -> None:
        lines.append(text.decode("utf-8", "replace"))

    callback = native.llama_log_callback(collect)
    native.llama_log_set(callback, ctypes.c_void_p(0))
    native.llama_backend_init()
    for request in sys.stdin:
        lines.clear()
        asked = json.loads(request)
        error = _size(asked)
        log = "".join(lines)
        # nothing is allocated, so the caches' buffers are zero; their summaries are not
        kv, recurrent = parse_cache_sizes(log)
        buffers = [
            [b.kind, b.device, b.bytes] for b in parse_buffers(log) if b.kind not in ("kv", "recurrent")
        ]
        buffers += [["kv", "", kv], ["recurrent", "", recurrent]]
        replies.write(json.dumps({"error": error, "buffers": buffers, "log": log if error else ""}) + "\n")
        replies.flush()


def _size(asked: dict[str, object]) -> str | None:
    """Build model and context without allocating anything; what they would take is in the log afterwards."""
    with _gguf(base64.b64decode(str(asked["header"]))) as metadata:
        if metadata is None:
            return "llama.cpp does not accept the header"
        parameters = native.llama_model_default_params()
        parameters.no_alloc = True
        parameters.load_mode = 0
        parameters.n_gpu_layers = int(str(asked["gpu_layers"]))
        ignore = native.llama_model_set_tensor_data_t(lambda tensor, user: None)
        model = native.llama_model_init_from_user(metadata, ignore, ctypes.c_void_p(0), parameters)
        if not model:
            return "llama.cpp cannot build this model"
        try:
            context = native.llama_init_from_model(model, _context_parameters(asked))
            if not context:
                return "llama.cpp cannot set up this context"
            native.llama_free(context)
        finally:
            native.llama_model_free(model)
    return None


@contextlib.contextmanager
def _gguf(header: bytes) -> Iterator[ctypes.c_void_p | None]:
    base = _ggml_base()
    base.gguf_init_from_buffer.restype = ctypes.c_void_p
    base.gguf_init_from_buffer.argtypes = [ctypes.c_char_p, ctypes.c_size_t, _InitParams]
    base.gguf_free.argtypes = [ctypes.c_void_p]
    pointer = base.gguf_init_from_buffer(header, len(header), _InitParams(True, None))
    try:
        yield ctypes.c_void_p(pointer) if pointer else None
    finally:
        if pointer:
            base.gguf_free(pointer)


def _ggml_base() -> ctypes.CDLL:
    """ggml's base library, which llama-cpp-python ships but does not bind."""
    folder = Path(native.__file__).parent / "lib"
    names = ("libggml-base.so", "libggml-base.dylib", "ggml-base.dll")
    return ctypes.CDLL(str(next(folder / name for name in names if (folder / name).exists())))


def _context_parameters(asked: dict[str, object]) -> native.llama_context_params:
    parameters = native.llama_context_default_params()
    parameters.n_ctx = int(str(asked["context"]))
    parameters.n_seq_max = int(str(asked["sequences"]))
    parameters.n_batch = int(str(asked["batch"]))
    parameters.n_ubatch = int(str(asked["ubatch"]))
    parameters.n_outputs_max = int(str(asked["outputs"]))
    parameters.type_k = _TYPES[str(asked["kv_type_k"])]
    parameters.type_v = _TYPES[str(asked["kv_type_v"])]
    parameters.flash_attn_type = _FLASH[str(asked["flash_attention"])]
    parameters.kv_unified = bool(asked["unified"])
    parameters.swa_full = bool(asked["swa_full"])
    parameters.embeddings = bool(asked["embedding"])
    parameters.n_threads = parameters.n_threads_batch = 1
    return parameters


if __name__ == "__main__":
    main()
