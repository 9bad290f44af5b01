from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.hardware.parsing import (
    LARGEST_MEMORY_BYTES,
    colon_kilobytes,
    colon_values,
    cpu_list,
    plausible_bytes,
    to_bytes,
    to_int,
    to_scaled,
    word_pairs,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        (" 12\n", 12),
        ("-3", -3),
        ("max", None),
        ("", None),
        (None, None),
        ("1e3", None),
        ("9" * 30, None),
    ],
)
def test_whole_numbers(text: str | None, number: int | None) -> None:
    assert to_int(text) == number


def test_hexadecimal_ids() -> None:
    assert to_int("0x10de", base=16) == 0x10DE
    assert to_int("c8", base=16) == 0xC8


def test_amounts_of_memory_are_neither_negative_nor_absurd() -> None:
    assert to_bytes("0") == 0
    assert to_bytes("-1") is None
    assert to_bytes(str(LARGEST_MEMORY_BYTES + 1)) is None
    assert plausible_bytes(None) is None
    assert to_bytes("9223372036854771712") is None  # cgroup v1's "no limit"


def test_sensors_out_of_range_are_unknown() -> None:
    assert to_scaled("45500", 1000, low=-40, high=200) == 45.5
    assert to_scaled("-273000", 1000, low=-40, high=200) is None
    assert to_scaled("hot", 1000, low=-40, high=200) is None


def test_meminfo_is_in_bytes() -> None:
    text = (
        "MemTotal:       16093432 kB\nHugePages_Total:       4\nActive(anon):     12 kB\nbroken line\nX: y kB"
    )
    assert colon_kilobytes(text) == {
        "MemTotal": 16093432 * 1024,
        "HugePages_Total": 4096,
        "Active(anon)": 12288,
    }


def test_pairs_and_fields() -> None:
    assert word_pairs("anon 5\nfile x\nalone\ninactive_file 7\n") == {"anon": 5, "inactive_file": 7}
    assert colon_values("a: 1\nb:2: 3\na: 9\nnone") == {"a": "1", "b": "2: 3"}


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("5", {5}),
        ("", set()),
        (None, set()),
        ("3-1", set()),
        ("0-99999999", set()),
        ("a,1", {1}),
    ],
)
def test_cpu_lists(text: str | None, cpus: set[int]) -> None:
    assert cpu_list(text) == cpus


@given(st.text())
def test_no_text_makes_a_parser_raise(text: str) -> None:
    to_int(text)
    to_int(text, base=16)
    to_bytes(text)
    to_scaled(text, 1000, low=0, high=1)
    colon_kilobytes(text)
    word_pairs(text)
    colon_values(text)
    assert len(cpu_list(text)) <= 1 << 16


@given(st.integers(0, LARGEST_MEMORY_BYTES))
def test_every_plausible_amount_comes_back(number: int) -> None:
    assert to_bytes(f" {number}\n") == number
