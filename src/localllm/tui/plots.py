"""Pictures made of characters: bars, sparklines and plots, as plain strings without colour.

Braille gives two columns and four rows of dots per cell; the ASCII forms are for terminals and fonts without it.
"""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"
ASCII_LEVELS = ".:-=+*#@"
_BRAILLE_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))


def bar(share: float, width: int) -> tuple[str, str]:
    """The filled and the empty part of a bar ``width`` cells wide for ``share`` 0…1. Anything above 0 shows."""
    filled = round(max(0.0, min(1.0, share)) * width)
    if share > 0 and filled == 0:
        filled = 1
    return "━" * filled, "─" * (width - filled)


def spark(values: Sequence[float], *, ascii_only: bool = False) -> str:
    """One cell per value, as high as its share of the largest; 0 is a blank."""
    levels = ASCII_LEVELS if ascii_only else LEVELS
    top = max(values, default=0.0)
    if top <= 0:
        return " " * len(values)
    steps = len(levels)
    return "".join(" " if v <= 0 else levels[min(steps - 1, int(v / top * steps))] for v in values)


def plot(
    values: Sequence[float | None],
    width: int,
    height: int,
    *,
    top: float | None = None,
    ascii_only: bool = False,
) -> list[str]:
    """An area plot of ``values`` (oldest first, right-aligned, None = gap) in ``height`` lines of ``width`` cells.

    ``top`` is the value of the upper edge; by default the largest value with a tenth of air.
    """
    if width <= 0 or height <= 0:
        return []
    scale = top if top is not None else ceiling(values)
    columns, rows = (width, height) if ascii_only else (width * 2, height * 4)
    shown = resample(values, columns)
    heights = [None if v is None else _dots(v, scale, rows) for v in shown]
    if ascii_only:
        return ["".join(_ascii_cell(h, row) for h in heights) for row in range(height - 1, -1, -1)]
    return [_braille_line(heights, row, width) for row in range(height - 1, -1, -1)]


def ceiling(values: Sequence[float | None]) -> float:
    """A round number a little above the largest value (1, 2 or 5 times a power of ten and steps between), at least 1."""
    largest = max((v for v in values if v is not None), default=0.0) * 1.05
    if largest <= 1:
        return 1.0
    magnitude = 1.0
    while magnitude * 10 <= largest:
        magnitude *= 10
    return next(step * magnitude for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * magnitude >= largest)


def over_time(
    times: Sequence[float], values: Sequence[float | None], seconds: float, steps: int
) -> list[float | None]:
    """``values`` in ``steps`` equal spans of the ``seconds`` before the last time: means, None where nothing was read.

    A service that is a minute old fills a fifth of a five-minute plot.
    """
    sums, counts = [0.0] * steps, [0] * steps
    end = times[-1] if times else 0.0
    for at, value in zip(times, values, strict=True):
        age = end - at
        if value is not None and 0 <= age < seconds:
            index = steps - 1 - int(age / seconds * steps)
            sums[index] += value
            counts[index] += 1
    return [s / c if c else None for s, c in zip(sums, counts, strict=True)]


def resample(values: Sequence[float | None], columns: int) -> list[float | None]:
    """``values`` squeezed (by their mean) or padded on the left into ``columns``."""
    count = len(values)
    if count <= columns:
        return [None] * (columns - count) + list(values)
    out: list[float | None] = []
    for column in range(columns):
        piece = [
            v for v in values[column * count // columns : (column + 1) * count // columns] if v is not None
        ]
        out.append(sum(piece) / len(piece) if piece else None)
    return out


def _dots(value: float, scale: float, rows: int) -> int:
    if value <= 0 or scale <= 0:
        return 0
    return max(1, min(rows, round(value / scale * rows)))


def _ascii_cell(height: int | None, row: int) -> str:
    if height is None or height <= row:
        return " "
    return "*" if height == row + 1 else ":"


def _braille_line(heights: Sequence[int | None], row: int, width: int) -> str:
    cells = []
    for column in range(width):
        bits = 0
        for half in (0, 1):
            height = heights[column * 2 + half] or 0
            for dot in range(max(0, min(4, height - row * 4))):
                bits |= _BRAILLE_DOTS[half][dot]
        cells.append(chr(0x2800 + bits) if bits else " ")
    return "".join(cells)
