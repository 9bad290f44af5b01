"""What a person should see in the banner: one notice per code, until it is cleared or replaced."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from localllm.core.control import Notice


class Notices:
    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.on_change = on_change
        self._notices: dict[str, Notice] = {}

    def show(self, code: str, level: Literal["info", "warning", "error"], text: str) -> None:
        """Show ``text`` until ``clear(code)``; the same text again changes nothing, its time included."""
        known = self._notices.get(code)
        if known is not None and (known.level, known.text) == (level, text):
            return
        self._notices[code] = Notice(code=code, level=level, text=text, since=time.time())
        self.on_change()

    def clear(self, code: str) -> None:
        if self._notices.pop(code, None) is not None:
            self.on_change()

    def all(self) -> tuple[Notice, ...]:
        return tuple(self._notices.values())
