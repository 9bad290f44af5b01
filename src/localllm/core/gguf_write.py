"""A GGUF header as bytes: what llama.cpp needs to size a model, without its tokenizer and without its weights."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from localllm.core.ggml import TENSOR_TYPES
from localllm.core.gguf import Skipped, TensorInfo, Value

_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _UINT64 = 4, 5, 6, 7, 8, 9, 10
_NUMBERS: Final = {kind.name: number for number, kind in TENSOR_TYPES.items()}
_ALIGNMENT: Final = 32
_TOKEN_TYPES: Final = "tokenizer.ggml.token_type_count"
"""The one thing about a tokenizer that changes a tensor's shape (BERT's)."""


def header_bytes(
    architecture: str, metadata: Mapping[str, Value], tensors: Sequence[TensorInfo], n_vocab: int
) -> bytes:
    """A header (version 3) with the architecture's own keys, all tensors, and no vocabulary.

    Tensors are laid out one after the other, whatever their offsets were.
    """
    kept: dict[str, Value] = {
        "general.architecture": architecture,
        "tokenizer.ggml.model": "no_vocab",
        f"{architecture}.vocab_size": n_vocab,
    }
    for key, value in metadata.items():
        wanted = key.startswith(architecture + ".") or key == _TOKEN_TYPES
        if wanted and not isinstance(value, Skipped):
            kept.setdefault(key, value)
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(kept))]
    for key, value in kept.items():
        parts += [_text(key), _value(value)]
    offset = 0
    for tensor in tensors:
        parts += [
            _text(tensor.name),
            struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape),
            struct.pack("<IQ", _NUMBERS[tensor.type], offset),
        ]
        offset += -(-tensor.size_bytes // _ALIGNMENT) * _ALIGNMENT
    header = b"".join(parts)
    return header + bytes(-len(header) % _ALIGNMENT)


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8")
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: Value) -> bytes:
    if isinstance(value, tuple):
        kind = _kind(value[0]) if value else _INT32
        # llama.cpp reads arrays of whole numbers as signed
        kind = _INT32 if kind in (_UINT32, _UINT64) else kind
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + b"".join(_plain(v, kind) for v in value)
    kind = _kind(value)
    return struct.pack("<I", kind) + _plain(value, kind)


def _kind(value: Value) -> int:
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, int):
        return _INT32 if value < 0 else _UINT32 if value < 1 << 32 else _UINT64
    return _FLOAT32 if isinstance(value, float) else _STRING


def _plain(value: Value, kind: int) -> bytes:
    if kind == _STRING:
        return _text(str(value))
    code = {_BOOL: "?", _UINT32: "I", _INT32: "i", _UINT64: "Q", _FLOAT32: "f"}[kind]
    return struct.pack("<" + code, value)
