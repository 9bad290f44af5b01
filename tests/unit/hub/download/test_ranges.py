from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.hub.download.ranges import Ranges

TOTAL = 64
SPANS = st.lists(
    st.tuples(st.integers(0, TOTAL), st.integers(0, TOTAL)).map(lambda pair: (min(pair), max(pair))),
    max_size=12,
)


@given(SPANS, st.integers(1, 20))
def test_ranges_are_a_set_of_positions(spans: list[tuple[int, int]], piece: int) -> None:
    ranges, there = Ranges(TOTAL, spans), {at for low, high in spans for at in range(low, high)}
    assert ranges.covered == len(there)
    assert ranges.complete == (len(there) == TOTAL)
    assert ranges.prefix == next((at for at in range(TOTAL) if at not in there), TOTAL)
    kept = list(ranges)
    assert all(low < high for low, high in kept)
    assert all(one[1] < two[0] for one, two in itertools.pairwise(kept)), "sorted, apart"
    missing = [at for low, high in ranges.pieces(piece) for at in range(low, high)]
    assert missing == sorted(set(range(TOTAL)) - there)
    assert all(high - low <= piece for low, high in ranges.pieces(piece))


@pytest.mark.parametrize("span", [(-1, 3), (3, 65), (5, 4)])
def test_what_is_outside_the_file_is_refused(span: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="not within"):
        Ranges(TOTAL).add(*span)
    with pytest.raises(ValueError, match="negative"):
        Ranges(-1)
