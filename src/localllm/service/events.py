"""The live state: one snapshot for whoever attaches, then only the sections that changed, at most four times a second.

Parts of the service ``touch`` a section; nothing is computed until somebody watches. One loop serves all watchers: it
reads each touched section once, drops what is equal to what was sent last, and hands the same delta to everyone. A
watcher that does not keep up loses its queue and gets a snapshot instead, so it costs no memory and is never behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping

from localllm.core.control import Section, State, StateDelta
from localllm.service.background import Background

TICK_S = 0.25
_QUEUED_DELTAS = 16

_FIELDS: Mapping[Section, str] = {
    Section.IDENTITY: "identity",
    Section.DEVICES: "devices",
    Section.INSTANCES: "instances",
    Section.MODELS: "models",
    Section.REQUESTS: "requests",
    Section.LIVE: "live",
    Section.TASKS: "tasks",
    Section.NOTICES: "notices",
    Section.CHATS: "chats_revision",
    Section.RECORDS: "records_revision",
}
_WHILE_BUSY = (Section.REQUESTS, Section.LIVE, Section.INSTANCES)


class StateHub:
    """``read`` gives the whole state; ``busy`` says whether anything runs, so that its figures are read each tick."""

    def __init__(
        self,
        readers: Mapping[Section, Callable[[], object]],
        *,
        busy: Callable[[], bool],
        background: Background,
    ) -> None:
        self._readers = readers
        self._busy = busy
        self._background = background
        self._watchers: set[asyncio.Queue[StateDelta | None]] = set()
        self._touched: set[Section] = set()
        self._wake = asyncio.Event()
        self._sent: dict[Section, object] = {}
        self._running = False
        self._closed = False
        self.on_watchers: Callable[[], None] = lambda: None

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    def touch(self, section: Section) -> None:
        """Say that a section may have changed."""
        self._touched.add(section)
        self._wake.set()

    def state(self) -> State:
        """Everything, read now."""
        return State(**{_FIELDS[section]: read() for section, read in self._readers.items()})  # type: ignore[arg-type]

    async def watch(self, *, quiet_s: float = 15.0) -> AsyncGenerator[State | StateDelta | None, None]:
        """The snapshot, then deltas for as long as the caller stays and the service lives.

        None after each ``quiet_s`` seconds without a change, so that a stream can show that it is alive.
        """
        queue: asyncio.Queue[StateDelta | None] = asyncio.Queue(_QUEUED_DELTAS)
        self._watchers.add(queue)
        self._start()
        self.on_watchers()
        try:
            yield self.state()
            while not self._closed:
                try:
                    async with asyncio.timeout(quiet_s):
                        delta = await queue.get()
                except TimeoutError:
                    yield None
                else:
                    yield delta or self.state()
        finally:
            self._watchers.discard(queue)
            self.on_watchers()

    def close(self) -> None:
        """End every watch, so that the server's connections can close."""
        self._closed = True
        for queue in self._watchers:
            _replace_all(queue)
        self._wake.set()

    def _start(self) -> None:
        if not self._running and not self._closed:
            self._running = True
            self._sent = {section: read() for section, read in self._readers.items()}
            self._touched.clear()
            self._background.spawn(self._serve(), name="state events")

    async def _serve(self) -> None:
        try:
            while self._watchers and not self._closed:
                if not self._busy():
                    await self._next_touch()
                if self._busy():
                    self._touched.update(_WHILE_BUSY)
                delta = self._changes()
                if delta is not None:
                    self._publish(delta)
                await asyncio.sleep(TICK_S)
        finally:
            self._running = False

    async def _next_touch(self) -> None:
        """Sleep until something happens; wakes now and then to notice that nobody watches any more."""
        self._wake.clear()
        if self._touched:
            return
        try:
            async with asyncio.timeout(30):
                await self._wake.wait()
        except TimeoutError:
            return

    def _changes(self) -> StateDelta | None:
        fields: dict[str, object] = {}
        for section in self._touched:
            value = self._readers[section]()
            if value != self._sent.get(section):
                self._sent[section] = fields[_FIELDS[section]] = value
        self._touched.clear()
        return StateDelta(**fields) if fields else None  # type: ignore[arg-type]

    def _publish(self, delta: StateDelta) -> None:
        for queue in self._watchers:
            try:
                queue.put_nowait(delta)
            except asyncio.QueueFull:
                _replace_all(queue)


def _replace_all(queue: asyncio.Queue[StateDelta | None]) -> None:
    """Empty the queue and leave the mark that says: read the whole state."""
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
