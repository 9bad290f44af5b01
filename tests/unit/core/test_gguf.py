"""The header reader against right files, every kind of wrong one, and random damage."""

from __future__ import annotations

import struct
import time
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localllm.core.errors import GGUFError
from localllm.core.gguf import MAX_ARRAY_ELEMENTS, Skipped, parse_header
from tests.support import gguf_bytes as g


def parse(data: bytes, **options: bool) -> object:
    return parse_header(g.MemorySource(data), **options)


def test_a_whole_header_is_read() -> None:
    header = parse_header(g.MemorySource(g.small_llama()))
    assert header.metadata["llama.block_count"] == 2
    assert [(t.name, t.shape, t.type, t.size_bytes) for t in header.tensors] == [
        ("token_embd.weight", (64, 3), "F32", 768),
        ("output.weight", (64, 3), "F32", 768),
    ]
    assert header.data_offset % 32 == 0
    assert header.data_offset + 1536 == header.size_bytes


def test_every_type_of_value_is_read() -> None:
    pairs = [
        g.pair("u8", g.UINT8, b"\xff"),
        g.pair("i8", g.INT8, b"\xff"),
        g.pair("i16", g.INT16, struct.pack("<h", -2)),
        g.pair("u64", g.UINT64, struct.pack("<Q", 1 << 40)),
        g.pair("f32", g.FLOAT32, struct.pack("<f", 0.5)),
        g.pair("f64", g.FLOAT64, struct.pack("<d", 0.25)),
        g.pair("yes", g.BOOL, b"\x01"),
        g.string("text", "größer"),
        g.array("numbers", g.INT32, 3, struct.pack("<3i", 1, -2, 3)),
        g.strings("tags", ["a", "b"]),
    ]
    metadata = parse_header(g.MemorySource(g.gguf(pairs))).metadata
    assert metadata == {
        "u8": 255,
        "i8": -1,
        "i16": -2,
        "u64": 1 << 40,
        "f32": 0.5,
        "f64": 0.25,
        "yes": True,
        "text": "größer",
        "numbers": (1, -2, 3),
        "tags": ("a", "b"),
    }


def test_a_vocabulary_is_counted_not_built() -> None:
    data = g.gguf([g.strings("tokenizer.ggml.tokens", (f"token{i}" for i in range(50_000)))])
    assert parse_header(g.MemorySource(data)).metadata["tokenizer.ggml.tokens"] == Skipped(50_000)


def test_skipped_strings_end_where_the_next_key_begins() -> None:
    words = ["", "x", "y" * 70_000] * 200
    data = g.gguf([g.strings("many", words), g.uint32("after", 7)])
    assert parse_header(g.MemorySource(data)).metadata["after"] == 7


def test_a_file_that_is_cut_short_inside_its_header_says_what_to_do() -> None:
    with pytest.raises(GGUFError) as caught:
        parse(g.gguf([g.array("k", g.UINT64, 1_000_000, b"")]))
    assert "copy it again" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"GG", "does not begin"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "HTML page"),
        (b"  \r\n<html><head>", "HTML page"),
        (b'{"error":"Invalid credentials"}', "JSON text"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"tjgg" + bytes(60), "GGJT"),
        (b"\x1f\x8b\x08" + bytes(60), "gzip"),
        (struct.pack("<Q", 512) + b'{"weight": {}}', "safetensors"),
        (bytes(4096), "zeros"),
        (b"MZ" + bytes(60), "does not begin"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 77, 0, 0), "version 77"),
        (b"GGUF", "truncated"),
        (b"GGUF" + struct.pack("<I", 3), "truncated"),
    ],
)
def test_what_is_no_gguf_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(GGUFError, match=reason):
        parse(data)


_HUGE = struct.pack("<Q", 1 << 63)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (g.gguf(pair_count=65_537), "65537 metadata keys"),
        (g.gguf(tensor_count=131_073), "131073 tensors"),
        (g.gguf(pair_count=2**63), "metadata keys"),
        (g.gguf([_HUGE]), "claims 9223372036854775808 bytes"),
        (g.gguf([g.text("k" * 65_537) + b"\0" * 8]), "claims 65537 bytes"),
        (g.gguf([g.text("k") + struct.pack("<I", g.STRING) + _HUGE]), "claims"),
        (g.gguf([g.text("k") + struct.pack("<I", 99)]), "unknown type 99"),
        (g.gguf([g.array("k", 99, 1, b"")]), "unknown type 99"),
        (g.gguf([g.array("k", g.ARRAY, 1, b"")]), "array of arrays"),
        (g.gguf([g.array("k", g.UINT8, MAX_ARRAY_ELEMENTS + 1, b"")]), "at most"),
        (g.gguf([g.array("k", g.UINT64, 1_000_000, b"")]), "more than the file has"),
        (g.gguf([g.array("k", g.STRING, 1_000, _HUGE * 1_000)]), "string of 9223372036854775808"),
        (g.gguf([g.uint32("k", 1), g.uint32("k", 2)]), "'k' occurs twice"),
        (g.gguf([g.string("k", b"\xff\xfe")]), "not valid UTF-8"),
        (g.gguf([g.uint32("general.alignment", 48)]), "power of two"),
        (g.gguf([g.uint32("general.alignment", 0)]), "power of two"),
        (g.gguf([g.string("general.alignment", "32")]), "power of two"),
        (g.gguf(tensors=[g.tensor("t", (1, 1, 1, 1, 1))]), "5 dimensions"),
        (g.gguf(tensors=[g.tensor("t", ())]), "0 dimensions"),
        (g.gguf(tensors=[g.tensor("t", (32, 0))]), "empty dimension"),
        (g.gguf(tensors=[g.tensor("t", (32,), 4)]), "Q4_2"),
        (g.gguf(tensors=[g.tensor("t", (32,), 31)]), "Q4_0_4_4"),
        (g.gguf(tensors=[g.tensor("t", (32,), 999)]), "type 999"),
        (g.gguf(tensors=[g.tensor("t", (33,), 2)]), "rows of 33"),
        (g.gguf(tensors=[g.tensor("t", (32,), 0, 7)]), "not aligned"),
        (g.gguf(tensors=[g.tensor("t", (32,)), g.tensor("t", (32,))]), "'t' occurs twice"),
        (g.gguf(tensors=[g.tensor("t", (1 << 62, 1 << 62, 1 << 62))]), "bytes too short"),
        (g.gguf(tensors=[g.tensor("t", (32,), 0, 1 << 62)]), "bytes too short"),
        (g.gguf(tensors=[g.tensor("t" * 256, (32,))]), "claims 256 bytes"),
    ],
)
def test_a_lying_header_is_refused_with_its_lie(data: bytes, reason: str) -> None:
    with pytest.raises(GGUFError, match=reason):
        parse(data)


def test_a_download_in_progress_can_be_read_on_request() -> None:
    data = g.small_llama()[:-100]
    with pytest.raises(GGUFError, match="100 bytes too short"):
        parse(data)
    parse(data, check_extent=False)


@pytest.mark.parametrize("cut", range(4, 400, 7))
def test_a_header_cut_anywhere_is_truncated(cut: int) -> None:
    with pytest.raises(GGUFError):
        parse(g.small_llama()[:cut], check_extent=False)


def test_a_source_that_returns_less_than_its_size_is_truncated() -> None:
    data = g.small_llama()
    with pytest.raises(GGUFError, match="truncated"):
        parse_header(g.MemorySource(data[:100], size=len(data)))


def test_many_middling_values_do_not_fill_the_memory() -> None:
    wide = "ä" * 500_000  # a megabyte each, kept
    data = g.gguf([g.string(f"k{i}", wide) for i in range(40)])
    tracemalloc.start()
    try:
        with pytest.raises(GGUFError, match="MiB of text"):
            parse(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


def test_a_header_of_many_tensors_stays_small() -> None:
    """A quarter of the 131,072 tensors allowed must take a quarter of the 64 MB allowed."""
    words = g.array("w", g.STRING, 100_000, g.text("word") * 100_000)
    data = g.gguf([words], [g.tensor(f"blk.{i}.weight", (32,)) for i in range(32_768)], data=bytes(128))
    tracemalloc.start()
    try:
        parse(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


def test_a_long_string_is_skipped_over() -> None:
    data = g.gguf([g.string("k", "x" * (3 << 20)), g.uint32("after", 7)])
    metadata = parse_header(g.MemorySource(data)).metadata
    assert metadata == {"k": Skipped(3 << 20), "after": 7}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_gives_a_reason_or_a_header_never_a_crash(data: st.DataObject) -> None:
    damaged = bytearray(g.small_llama())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, 500))
        damaged[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    began = time.monotonic()
    try:
        parse_header(g.MemorySource(bytes(damaged)))
    except GGUFError as error:
        assert error.message.endswith(".")
    assert time.monotonic() - began < 1


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
@example(b"GGUF\x03\x00\x00\x00" + b"\xff" * 16)
def test_noise_behind_the_magic_is_refused_or_read(noise: bytes) -> None:
    try:
        parse_header(g.MemorySource(b"GGUF\x03\x00\x00\x00" + noise))
    except GGUFError as error:
        assert error.message
