"""What other tools keep on this machine, looked at when the service starts and every minute after."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from localllm.hub.discover import HeaderNotes, Places, discover, identity_of, models_from
from localllm.hub.store import Store, StoredModel

log = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0
AGAIN_SOON_S = 0.5


class Discovered:
    """``models`` is what the last look found; looking happens in a thread and never writes into those stores."""

    def __init__(
        self, places: Places, notes_file: Path, store: Store, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._places = places
        self._notes_file = notes_file
        self._store = store
        self._on_change = on_change
        self._notes: HeaderNotes | None = None
        self.models: Sequence[StoredModel] = ()

    async def look(self) -> None:
        """Look once, and say so when something is different."""
        found = await asyncio.to_thread(self._look)
        if found != self.models:
            self.models = found
            self._on_change()

    async def run(self) -> None:
        """Look now and then; soon again while headers are still unread."""
        while True:
            try:
                await self.look()
            except OSError as error:
                log.warning("the other stores cannot be looked at", extra={"error": str(error)})
            unread = any(model.architecture is None and model.problem is None for model in self.models)
            await asyncio.sleep(AGAIN_SOON_S if unread else LOOK_EVERY_S)

    def _look(self) -> tuple[StoredModel, ...]:
        if self._notes is None:
            self._notes = HeaderNotes(self._notes_file)
        own = self._store.list()
        here = {identity_of(model.path) for model in own}
        # imported by link or reference: it is in our library already
        found = [each for each in discover(self._places) if each.identity not in here]
        return models_from(found, self._notes, (model.name for model in own))
