"""How often something that streams may be drawn: what arrives between two draws is merged into one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from localllm.core.control import ReplyEvent


async def pump(
    events: AsyncIterator[ReplyEvent], show: Callable[[ReplyEvent], Awaitable[None]], seconds: float
) -> None:
    """Hand every event to ``show``, neighbouring deltas as one, at least ``seconds`` apart.

    Raises what the stream raises, after everything that came before has been shown.
    """
    pending: list[ReplyEvent] = []
    wake = asyncio.Event()
    ended = False
    failure: BaseException | None = None

    async def read() -> None:
        nonlocal ended, failure
        try:
            async for event in events:
                pending.append(event)
                wake.set()
        except Exception as error:  # noqa: BLE001  # carried to the caller below, not swallowed
            failure = error
        finally:
            ended = True
            wake.set()

    async with asyncio.TaskGroup() as group:
        reader = group.create_task(read())
        try:
            while True:
                await wake.wait()
                wake.clear()
                batch, pending[:] = merged(pending), []
                for event in batch:
                    await show(event)
                if ended and not pending:
                    break
                await asyncio.sleep(seconds)
        finally:
            reader.cancel()
    if failure is not None:
        raise failure


def merged(events: Sequence[ReplyEvent]) -> list[ReplyEvent]:
    """The same events with each run of deltas joined into one."""
    out: list[ReplyEvent] = []
    for event in events:
        last = out[-1] if out else None
        if last is not None and event.kind == "delta" and last.kind == "delta":
            out[-1] = ReplyEvent(
                kind="delta",
                text=_joined(last.text, event.text),
                reasoning=_joined(last.reasoning, event.reasoning),
            )
        else:
            out.append(event)
    return out


def _joined(first: str | None, second: str | None) -> str | None:
    return None if first is None and second is None else (first or "") + (second or "")
