from __future__ import annotations

import pytest

from localllm.tui import figures

GIB = 1 << 30


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, "–"),
        (0, "0.0"),
        (int(5.1 * GIB), "5.1"),
        (8 * GIB, "8.0"),
        (32 * GIB, "32"),
        (int(31.2 * GIB), "31.2"),
        (512 * GIB, "512"),
    ],
)
def test_gib(count: int | None, shown: str) -> None:
    assert figures.gib(count) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(None, "–"), (253_113_024, "241 M"), (5_027_783_488, "4.7 G"), (3 * 1024 * GIB, "3.0 T")],
)
def test_size(count: int | None, shown: str) -> None:
    assert figures.size(count) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.42, "0.4 ms"), (180.4, "180 ms"), (1200, "1.2 s"), (125_000, "2 min")],
)
def test_milliseconds(value: float | None, shown: str) -> None:
    assert figures.milliseconds(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "now"),
        (59, "now"),
        (60, "1m"),
        (3599, "59m"),
        (7200, "2h"),
        (86_400 * 3, "3d"),
        (86_400 * 30, "4w"),
        (86_400 * 1000, ">1y"),
    ],
)
def test_ago_never_needs_more_than_three_cells(seconds: float, shown: str) -> None:
    assert figures.ago(seconds) == shown
    assert len(shown) <= 3


def test_share_is_unknown_when_either_side_is() -> None:
    assert figures.share(None, 8) is None
    assert figures.share(1, 0) is None
    assert figures.share(9, 8) == 1.0
