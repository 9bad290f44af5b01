"""One line on stderr that shows how far something long has come; silent where nobody can see it move."""

from __future__ import annotations

import sys
from types import TracebackType

from localllm.tui.sanitise import clean_text

_WIDTH = 24


class ProgressLine:
    """A context manager: ``show`` redraws the line, leaving removes it."""

    def __init__(self) -> None:
        self._visible = sys.stderr.isatty()
        self._drawn = ""

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw("")

    def show(self, text: str, fraction: float | None = None) -> None:
        """``fraction`` 0…1 draws a bar; None while nobody knows."""
        if fraction is not None:
            full = round(max(0.0, min(1.0, fraction)) * _WIDTH)
            text = f"{text}  {'█' * full}{'░' * (_WIDTH - full)} {fraction:4.0%}"
        self._draw(clean_text(text))

    def _draw(self, text: str) -> None:
        if not self._visible or text == self._drawn:
            return
        self._drawn = text
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
