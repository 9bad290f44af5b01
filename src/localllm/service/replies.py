"""One reply being written: it grows whether or not anybody watches, and whoever attaches gets all of it.

Watchers hold positions in the list of pieces instead of queues of their own, so a slow one costs no memory and
catches up in one step.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Literal

from msgspec.structs import replace

from localllm.core.control import ChatMessage, ReplyEvent, RequestPhase, RequestRecord
from localllm.core.errors import LocalLLMError
from localllm.core.generation import Event, Finished, ReasoningDelta, Started, TextDelta
from localllm.service.lease import Waiting

log = logging.getLogger(__name__)

SAVE_EVERY_S = 1.0
_FRAME_S = 0.03
_STOPPED = "stopped"


class Reply:
    """``save`` is called about every second with the message so far; it must return at once."""

    def __init__(self, chat_id: str, message: ChatMessage, save: Callable[[ChatMessage], None]) -> None:
        self.chat_id = chat_id
        self.task: asyncio.Task[None] | None = None
        self.stopped = False
        self._message = message
        self._save = save
        self._next_save: asyncio.TimerHandle | None = None
        self._pieces: list[TextDelta | ReasoningDelta] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._thinking_since: float | None = None
        self._status: str | None = None
        self._final: ReplyEvent | None = None
        self._record: RequestRecord | None = None
        self._changed: set[asyncio.Event] = set()

    # ------------------------------------------------------------ writing

    def waiting(self, waiting: Waiting) -> None:
        """Tell watchers why nothing comes yet."""
        if waiting.phase is RequestPhase.LOADING:
            percent = f" {waiting.fraction:.0%}" if waiting.fraction is not None else ""
            self._status = f"loading the model: {waiting.stage or 'starting'}{percent}"
        else:
            self._status = f"waiting, place {waiting.position}" if waiting.position else "waiting"
        self._notify()

    def finished(self, record: RequestRecord) -> None:
        """The pipeline's figures for this reply."""
        self._record = record

    def event(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._stop_thinking()
            self._text.append(event.text)
            self._pieces.append(event)
        elif isinstance(event, ReasoningDelta):
            if self._thinking_since is None:
                self._thinking_since = time.monotonic()
            self._reasoning.append(event.text)
            self._pieces.append(event)
        elif isinstance(event, Started):
            self._status = None
            self._message = replace(
                self._message, prompt_tokens=event.prompt_tokens, cached_tokens=event.cached_tokens
            )
        elif isinstance(event, Finished):
            self._message = replace(self._message, finish_reason=event.reason.value)
        else:
            return
        self._notify()
        if self._next_save is None:
            # a timer rather than a look at the clock: what came just before a long silence is saved as well
            self._next_save = asyncio.get_running_loop().call_later(SAVE_EVERY_S, self._save_now)

    def _save_now(self) -> None:
        self._next_save = None
        self._save(self.message)

    async def stop(self) -> None:
        """End the reply where it is; returns when it has been closed."""
        self.stopped = True
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})

    def end(self, error: LocalLLMError | None) -> ChatMessage:
        """Close the reply; what was written stays, as partial when it was cut short. Returns its final form."""
        if self._next_save is not None:
            self._next_save.cancel()
        self._stop_thinking()
        said = bool(self._text or self._reasoning)
        state: Literal["complete", "partial", "failed"]
        if self.stopped:
            state, error = "partial", None
            self._message = replace(self._message, finish_reason=_STOPPED)
        elif error is not None:
            state = "partial" if said else "failed"
        else:
            state = "complete"
        record = self._record
        self._message = replace(
            self._message,
            state=state,
            error=None if error is None else f"{error.message} {error.hint or ''}".strip(),
            completion_tokens=record.completion_tokens if record else None,
            ttft_ms=record.ttft_ms if record else None,
            tokens_per_second=record.tokens_per_second if record else None,
            model=record.model if record else self._message.model,
        )
        message = self.message
        if error is None:
            self._final = ReplyEvent(kind="done", message=message)
        else:
            self._final = ReplyEvent(
                kind="error", message=message, code=error.code, error=error.message, hint=error.hint
            )
        self._notify()
        return message

    # ------------------------------------------------------------ reading

    @property
    def message(self) -> ChatMessage:
        """The whole message as it stands."""
        return replace(
            self._message,
            content="".join(self._text),
            reasoning="".join(self._reasoning) if self._reasoning else None,
        )

    async def watch(self, *, quiet_s: float = 15.0) -> AsyncGenerator[ReplyEvent | None, None]:
        """First everything so far, then what is added, then the end; None after ``quiet_s`` seconds of silence."""
        changed = asyncio.Event()
        self._changed.add(changed)
        try:
            position, status = len(self._pieces), self._status
            yield ReplyEvent(kind="so_far", message=self.message, status=status)
            while True:
                if position < len(self._pieces):
                    fresh, position = self._pieces[position:], len(self._pieces)
                    yield _delta(fresh)
                elif self._final is not None:
                    yield self._final
                    return
                elif status != self._status and self._status is not None:
                    status = self._status
                    yield ReplyEvent(kind="status", status=status)
                else:
                    try:
                        async with asyncio.timeout(quiet_s):
                            await changed.wait()
                    except TimeoutError:
                        yield None
                        continue
                    changed.clear()
                    await asyncio.sleep(_FRAME_S)  # a frame's worth of tokens goes out as one event
        finally:
            self._changed.discard(changed)

    def _stop_thinking(self) -> None:
        if self._thinking_since is not None:
            spent_ms = (time.monotonic() - self._thinking_since) * 1000
            before = self._message.reasoning_ms or 0.0
            self._message = replace(self._message, reasoning_ms=before + spent_ms)
            self._thinking_since = None

    def _notify(self) -> None:
        for changed in self._changed:
            changed.set()


def _delta(pieces: list[TextDelta | ReasoningDelta]) -> ReplyEvent:
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    reasoning = "".join(piece.text for piece in pieces if isinstance(piece, ReasoningDelta))
    return ReplyEvent(kind="delta", text=text or None, reasoning=reasoning or None)


async def write_reply(reply: Reply, events: AsyncGenerator[Event, None]) -> LocalLLMError | None:
    """Feed a reply from the pipeline to its end; returns the error that ended it, if one did."""
    try:
        async with aclosing(events) as stream:
            async for event in stream:
                reply.event(event)
    except LocalLLMError as error:
        return error
    except Exception:
        log.exception("a reply failed")
        return LocalLLMError(
            "Something went wrong inside localllm.", hint="The log has the details: localllm logs"
        )
    return None
