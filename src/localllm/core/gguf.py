"""The header of a GGUF file, read as if an enemy had written it.

Sizes in a file are claims. Every length is checked against a fixed limit and against the bytes that are left before
anything is read or kept; big arrays (a tokenizer's 262,144 strings) are walked over, not built. Nothing here opens
files: a ``ByteSource`` hands out bytes, so the same reader serves disk files and remote ranges.

Format: ggml's docs/gguf.md, versions 2 and 3.
"""

from __future__ import annotations

import math
import struct
from typing import Final, Protocol

from msgspec import Struct

from localllm.core.errors import GGUFError
from localllm.core.ggml import DROPPED_TYPES, TENSOR_TYPES

MAX_KEYS: Final = 65_536
MAX_TENSORS: Final = 131_072
MAX_KEY_BYTES: Final = 64 << 10
MAX_STRING_BYTES: Final = 16 << 20
MAX_ARRAY_ELEMENTS: Final = 64 << 20
MAX_DIMENSIONS: Final = 4
MAX_KEPT_BYTES: Final = 8 << 20
MAX_TENSOR_NAME_BYTES: Final = 255

_KEPT_NUMBERS = 8_192
_KEPT_STRINGS = 256
_KEPT_STRING_BYTES = 2 << 20
_WINDOW_BYTES = 1 << 20

_UINT64 = struct.Struct("<Q")

_STRING, _ARRAY = 8, 9
_SCALARS: dict[int, tuple[str, int]] = {
    0: ("B", 1),
    1: ("b", 1),
    2: ("H", 2),
    3: ("h", 2),
    4: ("I", 4),
    5: ("i", 4),
    6: ("f", 4),
    7: ("?", 1),
    10: ("Q", 8),
    11: ("q", 8),
    12: ("d", 8),
}

_OTHER_FILES: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the model: the real file was never downloaded"),
    (b"<!doctype", "an HTML page, not a model: the download got a web page (login, error or captive portal)"),
    (b"<html", "an HTML page, not a model: the download got a web page (login, error or captive portal)"),
    (b"{", "JSON text, not a model: perhaps an error message that a server sent instead"),
    (
        b"pk\x03\x04",
        "a zip archive (a PyTorch checkpoint?), not a GGUF file: convert it with convert_hf_to_gguf.py",
    ),
    (b"ggml", "an old GGML file: llama.cpp reads only GGUF since August 2023"),
    (b"lmgg", "an old GGML file: llama.cpp reads only GGUF since August 2023"),
    (b"fmgg", "an old GGMF file: llama.cpp reads only GGUF since August 2023"),
    (b"tjgg", "an old GGJT file: llama.cpp reads only GGUF since August 2023"),
    (b"algg", "a LoRA adapter in the old GGLA format: convert it with convert_lora_to_gguf.py"),
    (b"\x1f\x8b", "a gzip archive, not a GGUF file: unpack it first"),
)


class ByteSource(Protocol):
    """Where the bytes come from. ``size`` is the whole file's; ``read_at`` may return fewer bytes only at its end."""

    @property
    def size(self) -> int: ...

    def read_at(self, offset: int, length: int) -> bytes: ...


class Skipped(Struct, frozen=True):
    """A value too long to be kept: only its length is known (a tokenizer's list of tokens is the vocabulary)."""

    length: int


Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...] | Skipped


class TensorInfo(Struct, frozen=True):
    """``shape`` in ggml's order (innermost first); ``offset`` counts from the start of the data section."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    size_bytes: int


class GGUFHeader(Struct, frozen=True, kw_only=True):
    """Everything before the weights. ``size_bytes`` is the file's, ``data_offset`` where the weights begin."""

    version: int
    metadata: dict[str, Value]
    tensors: tuple[TensorInfo, ...]
    alignment: int
    data_offset: int
    size_bytes: int


def parse_header(source: ByteSource, *, check_extent: bool = True) -> GGUFHeader:
    """Read the header; weights are never touched.

    ``check_extent=False`` accepts a file that ends before its last tensor (a download in progress, a header-only
    file).

    Raises:
        GGUFError: with the reason in one sentence, for any input whatsoever.
    """
    cursor = _Cursor(source)
    version = _check_preamble(cursor)
    tensor_count, key_count = cursor.uint64(), cursor.uint64()
    if tensor_count > MAX_TENSORS:
        raise GGUFError(f"The header claims {tensor_count} tensors; at most {MAX_TENSORS} are believable.")
    if key_count > MAX_KEYS:
        raise GGUFError(f"The header claims {key_count} metadata keys; at most {MAX_KEYS} are believable.")
    metadata = _read_metadata(cursor, key_count)
    alignment = _alignment(metadata)
    tensors = _read_tensors(cursor, tensor_count, alignment)
    data_offset = -(-cursor.position // alignment) * alignment
    if check_extent:
        _check_extent(tensors, data_offset, source.size)
    return GGUFHeader(
        version=version,
        metadata=metadata,
        tensors=tensors,
        alignment=alignment,
        data_offset=data_offset,
        size_bytes=source.size,
    )


class _Cursor:
    """A position in the source behind a window of bytes that is refilled as the position moves."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._size = source.size
        self._window = b""
        self._start = 0
        self._kept = 0
        self.position = 0

    def left(self) -> int:
        return self._size - self.position

    def keep(self, count: int) -> None:
        """Account for bytes that stay in memory, so that many middling values cannot fill it either."""
        self._kept += count
        if self._kept > MAX_KEPT_BYTES:
            raise GGUFError(f"The header holds more than {MAX_KEPT_BYTES >> 20} MiB of text.")

    def take(self, count: int) -> bytes:
        self._fill(count)
        at = self.position - self._start
        self.position += count
        return self._window[at : at + count]

    def skip(self, count: int) -> None:
        if count > self.left():
            raise self._truncated()
        self.position += count

    def uint32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def uint64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def peek_uint64(self) -> int:
        value = self.uint64()
        self.position -= 8
        return value

    def string(self, limit: int, what: str) -> str:
        length = self.uint64()
        if length > limit:
            raise GGUFError(f"{what} claims {length} bytes; at most {limit} are allowed.")
        self.keep(length)
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise GGUFError(f"{what} is not valid UTF-8.") from None

    def skip_strings(self, count: int, what: str) -> None:
        """Walk over ``count`` strings: this loop is the cost of opening a model, so it works on the window itself."""
        unpack = _UINT64.unpack_from
        while count:
            self._fill(8)
            window, start = self._window, self._start
            at, last = self.position - start, len(window) - 8
            while count and at <= last:
                length: int = unpack(window, at)[0]
                if length > MAX_STRING_BYTES:
                    raise GGUFError(
                        f"{what} holds a string of {length} bytes; at most {MAX_STRING_BYTES} are allowed."
                    )
                at += 8 + length
                count -= 1
            self.position = start + at
            if self.position > self._size:
                raise self._truncated()

    def _fill(self, count: int) -> None:
        at = self.position - self._start
        if at >= 0 and at + count <= len(self._window):
            return
        if count > self.left():
            raise self._truncated()
        self._window = self._source.read_at(self.position, min(max(count, _WINDOW_BYTES), self.left()))
        self._start = self.position
        if len(self._window) < count:
            raise self._truncated()

    def _truncated(self) -> GGUFError:
        return GGUFError(
            f"The file ends inside its header (at byte {self._size}): it is truncated or damaged.",
            hint="Download or copy it again.",
        )


def _check_preamble(cursor: _Cursor) -> int:
    """The version, or an error that says what the file is instead."""
    if cursor.left() == 0:
        raise GGUFError("The file is empty.", hint="Download or copy it again.")
    start = cursor.take(min(64, cursor.left()))
    cursor.position = 0
    if start[:4] != b"GGUF":
        folded = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
        for prefix, what in _OTHER_FILES:
            if folded.startswith(prefix):
                raise GGUFError(f"The file is {what}.")
        if start[8:10] == b'{"':
            raise GGUFError(
                "The file is in safetensors format, not GGUF: convert it with convert_hf_to_gguf.py."
            )
        if start.strip(b"\0") == b"":
            raise GGUFError("The file begins with zeros: a download that was never written to disk.")
        raise GGUFError("The file is not a GGUF model (it does not begin with the letters GGUF).")
    cursor.position = 4
    version = cursor.uint32()
    if version in (2, 3):
        return version
    if version == 1:
        raise GGUFError(
            "The file is GGUF version 1, which llama.cpp no longer reads: convert the model again."
        )
    if int.from_bytes(version.to_bytes(4, "little"), "big") in (1, 2, 3):
        raise GGUFError(
            "The file is a big-endian GGUF (made for s390x or similar), which this machine cannot run."
        )
    raise GGUFError(f"The file says GGUF version {version}; versions 2 and 3 are known.")


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for index in range(count):
        key = cursor.string(MAX_KEY_BYTES, f"Metadata key {index}")
        if key in metadata:
            raise GGUFError(f"The metadata key {key!r:.80} occurs twice.")
        kind = cursor.uint32()
        metadata[key] = _read_value(cursor, kind, f"The metadata value {key!r:.80}")
    return metadata


def _read_value(cursor: _Cursor, kind: int, what: str) -> Value:
    if kind == _STRING:
        return _read_string(cursor, what)
    if kind == _ARRAY:
        return _read_array(cursor, what)
    if kind not in _SCALARS:
        raise GGUFError(f"{what} has the unknown type {kind}.")
    code, size = _SCALARS[kind]
    value: Scalar = struct.unpack("<" + code, cursor.take(size))[0]
    return value


def _read_string(cursor: _Cursor, what: str) -> str | Skipped:
    length = cursor.peek_uint64()
    if _KEPT_STRING_BYTES < length <= MAX_STRING_BYTES:
        cursor.skip(8 + length)
        return Skipped(length)
    return cursor.string(MAX_STRING_BYTES, what)


def _read_array(cursor: _Cursor, what: str) -> tuple[Scalar, ...] | Skipped:
    kind, length = cursor.uint32(), cursor.uint64()
    if kind == _ARRAY:
        raise GGUFError(f"{what} is an array of arrays, which GGUF files do not use.")
    if kind != _STRING and kind not in _SCALARS:
        raise GGUFError(f"{what} is an array of the unknown type {kind}.")
    if length > MAX_ARRAY_ELEMENTS:
        raise GGUFError(f"{what} claims {length} elements; at most {MAX_ARRAY_ELEMENTS} are allowed.")
    element_bytes = 8 if kind == _STRING else _SCALARS[kind][1]
    if length * element_bytes > cursor.left():
        raise GGUFError(
            f"{what} claims {length} elements, more than the file has bytes for.",
            hint="The file is probably cut short: download or copy it again.",
        )
    if kind == _STRING:
        if length > _KEPT_STRINGS:
            cursor.skip_strings(length, what)
            return Skipped(length)
        return tuple(cursor.string(MAX_STRING_BYTES, what) for _ in range(length))
    code, size = _SCALARS[kind]
    if length > _KEPT_NUMBERS:
        cursor.skip(length * size)
        return Skipped(length)
    cursor.keep(length * 32)
    return struct.unpack(f"<{length}{code}", cursor.take(length * size))


def _alignment(metadata: dict[str, Value]) -> int:
    value = metadata.get("general.alignment", 32)
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or not 8 <= value <= 1 << 20
        or value & (value - 1)
    ):
        raise GGUFError(f"general.alignment is {value!r:.40}; it must be a power of two between 8 and 1 MiB.")
    return value


def _read_tensors(cursor: _Cursor, count: int, alignment: int) -> tuple[TensorInfo, ...]:
    names: set[str] = set()
    tensors: list[TensorInfo] = []
    for index in range(count):
        name = cursor.string(MAX_TENSOR_NAME_BYTES, f"The name of tensor {index}")
        if name in names:
            raise GGUFError(f"The tensor {name!r:.80} occurs twice.")
        names.add(name)
        tensors.append(_read_tensor(cursor, name, alignment))
    return tuple(tensors)


def _read_tensor(cursor: _Cursor, name: str, alignment: int) -> TensorInfo:
    dimensions = cursor.uint32()
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise GGUFError(
            f"The tensor {name!r:.80} has {dimensions} dimensions; 1 to {MAX_DIMENSIONS} are allowed."
        )
    shape = struct.unpack(f"<{dimensions}Q", cursor.take(8 * dimensions))
    number = cursor.uint32()
    offset = cursor.uint64()
    if 0 in shape:
        raise GGUFError(f"The tensor {name!r:.80} has an empty dimension.")
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        if number in DROPPED_TYPES:
            raise GGUFError(
                f"The tensor {name!r:.80} is {DROPPED_TYPES[number]}, which llama.cpp no longer loads.",
                hint="Take a newer quantisation of the model (Q4_0 is repacked at load instead).",
            )
        raise GGUFError(f"The tensor {name!r:.80} has the type {number}, which is not known here.")
    if shape[0] % kind.block_elements:
        raise GGUFError(
            f"The tensor {name!r:.80} has rows of {shape[0]} elements, not a multiple of {kind.name}'s {kind.block_elements}."
        )
    if offset % alignment:
        raise GGUFError(f"The tensor {name!r:.80} lies at {offset}, which is not aligned to {alignment}.")
    size_bytes = kind.row_bytes(shape[0]) * math.prod(shape[1:])
    return TensorInfo(name, shape, kind.name, offset, size_bytes)


def _check_extent(tensors: tuple[TensorInfo, ...], data_offset: int, size: int) -> None:
    last = max(tensors, key=_end, default=None)
    if last is not None and data_offset + _end(last) > size:
        missing = data_offset + _end(last) - size
        raise GGUFError(
            f"The file is {missing} bytes too short for its tensor {last.name!r:.80}: the download is incomplete.",
            hint="Download or copy it again.",
        )


def _end(tensor: TensorInfo) -> int:
    return tensor.offset + tensor.size_bytes
