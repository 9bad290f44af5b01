from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.tui import plots

VALUES = st.lists(st.none() | st.floats(min_value=0, max_value=1e12), max_size=200)


@given(st.floats(min_value=-1, max_value=2), st.integers(min_value=1, max_value=60))
def test_a_bar_fills_its_width(share: float, width: int) -> None:
    full, empty = plots.bar(share, width)
    assert len(full) + len(empty) == width
    assert bool(full) == (share > 0)


@given(VALUES, st.integers(0, 60), st.integers(0, 12), st.booleans())
def test_a_plot_is_as_large_as_its_room(
    values: list[float | None], width: int, height: int, ascii_only: bool
) -> None:
    lines = plots.plot(values, width, height, ascii_only=ascii_only)
    assert len(lines) == (height if width else 0)
    assert {len(line) for line in lines} <= {width}
    assert not ascii_only or all(line.isascii() for line in lines)


def test_a_braille_plot_draws_areas_from_the_bottom() -> None:
    assert plots.plot([1, 2, 3, 4], 2, 1, top=4) == ["⣠⣾"]


def test_what_is_above_nothing_shows() -> None:
    assert plots.plot([0.0001, 0], 1, 1, top=1000) == ["⡀"]


def test_a_gap_stays_empty() -> None:
    assert plots.plot([4, None, 4, None], 2, 1, top=4) == ["⡇⡇"]


def test_newest_values_are_at_the_right_edge() -> None:
    assert plots.plot([5], 3, 2, top=5, ascii_only=True) == ["  *", "  :"]


@given(VALUES, st.integers(min_value=1, max_value=80))
def test_resampling_stays_within_the_values(values: list[float | None], columns: int) -> None:
    known = [v for v in values if v is not None]
    out = plots.resample(values, columns)
    assert len(out) == columns
    for value in out:
        assert value is None or min(known) * 0.999 <= value <= max(known) * 1.001


@given(st.floats(min_value=0, max_value=1e9))
def test_the_ceiling_is_above_but_near(value: float) -> None:
    top = plots.ceiling([value, None])
    assert top >= value
    assert top <= max(1.0, value * 2.2)


@pytest.mark.parametrize("ascii_only", [False, True])
def test_sparks_have_one_cell_each(ascii_only: bool) -> None:
    assert plots.spark([0, 0], ascii_only=ascii_only) == "  "
    drawn = plots.spark([0, 1, 8], ascii_only=ascii_only)
    assert len(drawn) == 3
    assert drawn[0] == " "
    assert drawn[1] != drawn[2]


def test_a_young_service_fills_only_its_part_of_the_window() -> None:
    assert plots.over_time([91.0, 100.0], [4.0, 2.0], 40.0, 4) == [None, None, None, 3.0]
    assert plots.over_time([60.0, 75.0, 100.0], [9.0, 1.0, 2.0], 40.0, 4) == [None, 1.0, None, 2.0]
    assert plots.over_time([], [], 40.0, 2) == [None, None]
