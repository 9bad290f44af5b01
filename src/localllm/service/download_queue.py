"""The list of pulls on disk, so that they go on after the service was stopped, killed or updated."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from localllm.core.errors import Forbidden
from localllm.hub.pull_plan import PullPlan
from localllm.settings.private import secure_folder, write_private

log = logging.getLogger(__name__)

FORMAT = 1


class Queued(Struct, frozen=True, kw_only=True):
    """One pull that is not done. ``paused``: by a person, or for want of room."""

    id: str
    plan: PullPlan
    paused: bool = False


class _Queue(Struct, frozen=True):
    format: int
    pulls: tuple[Queued, ...]


class QueueFile:
    """Replaced by rename; one that cannot be read is put aside and costs the list, never the bytes that are here."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = asyncio.Lock()

    async def read(self) -> tuple[Queued, ...]:
        return await asyncio.to_thread(self._read)

    async def write(self, pulls: Iterable[Queued]) -> None:
        """A disk that refuses is logged and the pulls go on: they would only not be remembered."""
        content = msgspec.json.encode(_Queue(FORMAT, tuple(pulls)))
        async with self._turn:
            await asyncio.to_thread(self._write, content)

    def _read(self) -> tuple[Queued, ...]:
        try:
            queue = msgspec.json.decode(self._path.read_bytes(), type=_Queue)
            if queue.format <= FORMAT:
                return queue.pulls
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("the list of downloads cannot be read", extra={"error": str(error)})
        self._put_aside()
        return ()

    def _put_aside(self) -> None:
        try:
            self._path.rename(self._path.with_suffix(f".corrupt-{time.time():.0f}"))
        except OSError as error:
            log.warning("the list of downloads cannot be put aside", extra={"error": str(error)})

    def _write(self, content: bytes) -> None:
        try:
            secure_folder(self._path.parent)
            write_private(self._path, content)
        except (OSError, Forbidden) as error:
            log.warning("the list of downloads cannot be written", extra={"error": str(error)})
