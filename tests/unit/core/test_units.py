import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.units import format_bytes, format_context, format_count, format_duration, parse_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5476083712, "5.1 GiB"),
        (1 << 40, "1.0 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_bytes_are_binary_with_one_decimal(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_rounding_up_moves_to_the_next_unit() -> None:
    assert format_bytes((1 << 30) - 1) == "1.0 GiB"


@pytest.mark.parametrize(
    ("count", "text"),
    [(7, "7"), (1234, "1.2k"), (8030261248, "8.0B"), (268100000, "268.1M"), (999999, "1.0M")],
)
def test_counts_are_decimal(count: int, text: str) -> None:
    assert format_count(count) == text


@pytest.mark.parametrize(("tokens", "text"), [(512, "512"), (32768, "32k"), (2500, "2.4k"), (131072, "128k")])
def test_context_lengths_count_in_1024s(tokens: int, text: str) -> None:
    assert format_context(tokens) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "250 ms"),
        (3.2, "3.2 s"),
        (60, "1 min"),
        (125, "2 min 5 s"),
        (3725, "1 h 2 min"),
        (90000 * 3, "3 d 3 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_duration_that_is_no_number_is_unknown() -> None:
    assert format_duration(float("inf")) == "unknown"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("8GiB", 8 << 30),
        ("8 GB", 8 * 10**9),
        ("512m", 512 << 20),
        ("1.5g", 3 << 29),
        ("4096", 4096),
        ("10 b", 10),
    ],
)
def test_sizes_are_parsed(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e3", "8 bits", "nan", "1 GiB 2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_bytes(text)


@given(st.integers(min_value=0, max_value=1 << 60))
def test_a_formatted_size_reads_back_within_its_rounding(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.05)
