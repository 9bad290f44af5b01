"""GGUF headers byte by byte, right or wrong as wanted: what the reader's tests are made of."""

from __future__ import annotations

import struct
from collections.abc import Iterable

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)


class MemorySource:
    """A ``ByteSource`` over bytes; ``reads`` counts what was asked for."""

    def __init__(self, data: bytes, *, size: int | None = None) -> None:
        self._data = data
        self._size = len(data) if size is None else size
        self.reads = 0

    @property
    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, length: int) -> bytes:
        self.reads += 1
        return self._data[offset : offset + length]


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    """One metadata entry; ``value`` is already encoded."""
    return text(key) + struct.pack("<I", kind) + value


def uint32(key: str, value: int) -> bytes:
    return pair(key, UINT32, struct.pack("<I", value))


def string(key: str, value: str | bytes) -> bytes:
    return pair(key, STRING, text(value))


def array(key: str, kind: int, length: int, body: bytes) -> bytes:
    return pair(key, ARRAY, struct.pack("<IQ", kind, length) + body)


def strings(key: str, values: Iterable[str]) -> bytes:
    encoded = [text(value) for value in values]
    return array(key, STRING, len(encoded), b"".join(encoded))


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def gguf(
    pairs: Iterable[bytes] = (),
    tensors: Iterable[bytes] = (),
    *,
    version: int = 3,
    pair_count: int | None = None,
    tensor_count: int | None = None,
    data: bytes = b"",
) -> bytes:
    """A whole file; the counts are those of the lists unless given."""
    entries, infos = list(pairs), list(tensors)
    head = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(infos) if tensor_count is None else tensor_count,
        len(entries) if pair_count is None else pair_count,
    )
    body = head + b"".join(entries) + b"".join(infos)
    return body + bytes(-len(body) % 32) + data


def small_llama(*extra: bytes, drop: str | None = None) -> bytes:
    """The smallest header that is a model; ``drop`` leaves out the key of that name."""
    keys = {
        "general.architecture": string("general.architecture", "llama"),
        "llama.block_count": uint32("llama.block_count", 2),
        "llama.embedding_length": uint32("llama.embedding_length", 64),
        "llama.feed_forward_length": uint32("llama.feed_forward_length", 128),
        "llama.attention.head_count": uint32("llama.attention.head_count", 4),
        "llama.context_length": uint32("llama.context_length", 2048),
        "tokenizer.ggml.tokens": strings("tokenizer.ggml.tokens", ["a", "b", "c"]),
    }
    if drop is not None:
        del keys[drop]
    infos = [tensor("token_embd.weight", (64, 3), 0, 0), tensor("output.weight", (64, 3), 0, 768)]
    return gguf([*keys.values(), *extra], infos, data=bytes(1536))
