"""The terminal app on the service in memory, as a program: ``python -m tests.support.fake_app [SCREEN]``."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
from collections.abc import AsyncIterator

import msgspec

from localllm.core.control import History, State, StateDelta
from localllm.core.errors import LocalLLMError
from localllm.tui.main import run_app
from tests.support.fake_backend import FakeBackend
from tests.support.sample_state import CPU, IDLE, STATE


class TickingBackend(FakeBackend):
    """Samples its devices five times a second; the memory in use changes too little to be seen."""

    async def events(self) -> AsyncIterator[State | StateDelta]:
        async def tick() -> None:
            for used in itertools.count(1):
                await asyncio.sleep(0.2)
                cpu = msgspec.structs.replace(CPU, memory_used_bytes=9 * (1 << 30) + used * 4096)
                self.change(devices=(cpu,))

        async with asyncio.TaskGroup() as group:
            ticking = group.create_task(tick())
            async for event in super().events():
                yield event
            ticking.cancel()


class StuckBackend(FakeBackend):
    """Asked for more than five minutes of history, it stops the app's event loop for a minute."""

    async def history(self, seconds: float) -> History:
        if seconds > 300:
            threading.Event().wait(60)
        return await super().history(seconds)


KINDS: dict[str, type[FakeBackend]] = {"FAKE_TICKS": TickingBackend, "FAKE_STUCK": StuckBackend}


def main() -> int:
    kind = next((kind for name, kind in KINDS.items() if os.environ.get(name)), FakeBackend)
    backend = kind(IDLE if os.environ.get("FAKE_IDLE") else STATE)
    try:
        return run_app(connect=backend.connect, start_screen=sys.argv[1] if len(sys.argv) > 1 else "chat")
    except LocalLLMError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
