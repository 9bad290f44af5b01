"""The page of keys, read off the table that the app's bindings are made from."""

from __future__ import annotations

from collections.abc import Iterator

from generators.markdown import HEAD, cell
from localllm.tui.actions import ACTIONS, Scope, shown_key


def page() -> Iterator[str]:
    yield HEAD
    yield "# Keys of the terminal app\n"
    yield "The mouse works, too. In a field, letters are text: leave it with Esc first, or use the key with Ctrl."
    for scope in Scope:
        yield f"\n## {scope.value.capitalize()}\n"
        yield "| key | |\n|---|---|"
        for action in ACTIONS:
            if action.scope is scope:
                keys = ", ".join(f"`{shown_key(key)}`" for key in action.keys)
                yield f"| {cell(keys)} | {cell(action.help)} |"
