"""Waiting for the terminal app in tests, by what it does: until no short worker runs and two rounds were quiet."""

from __future__ import annotations

from textual.pilot import Pilot

# Workers that end by themselves; following the service or a reply does not, and a dialog waits for a person.
_SHORT = frozenset(
    {
        "chats",
        "open",
        "send",
        "stop",
        "fit",
        "load",
        "unload",
        "history",
        "config",
        "records",
        "doctor",
        "export",
        "search",
        "steer",
    }
)
_ROUND_SECONDS = 0.01
_ROUNDS = 500


async def settle(pilot: Pilot[None]) -> None:
    """Let short workers end and redraws happen; a worker may start another, so quiet has to last two rounds."""
    quiet = 0
    for _ in range(_ROUNDS):
        await pilot.pause(_ROUND_SECONDS)
        busy = any(w.group in _SHORT and not w.is_finished for w in pilot.app.workers)
        quiet = 0 if busy else quiet + 1
        if quiet > 2:
            return
    raise AssertionError("the app never came to rest")


async def press(pilot: Pilot[None], *keys: str) -> None:
    """Press keys and let the app come to rest."""
    await pilot.press(*keys)
    await settle(pilot)
