"""Notes each request in the audit log, whatever its end; when the log cannot be written, nothing is let past it.

Lines are flushed to the disk on a thread of their own. An entry that could not be written stays pending and is tried
again before the next request begins; until then requests are refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from localllm.core.errors import Cancelled, LocalLLMError
from localllm.core.gateway import AuditReport
from localllm.service.gateway.audit import AuditEntry, AuditLog
from localllm.service.gateway.policy import Admission, Exchange
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import CLIENT_LEFT

log = logging.getLogger(__name__)


class AuditTrail(Admission):
    """One per service: it is the log's only writer."""

    name: ClassVar[str] = "audit"

    def __init__(self, folder: Path, status_of: Callable[[LocalLLMError], int]) -> None:
        self._folder = folder
        self._log = AuditLog(folder)
        self._status_of = status_of
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="audit")
        self._pending: deque[AuditEntry] = deque()
        self._written = 0

    def wants(self, rules: Rules) -> bool:
        return rules.audit

    def figures(self) -> dict[str, int]:
        return {"written": self._written, "pending": len(self._pending)}

    def close(self) -> None:
        """Write what waits and end the thread."""
        self._thread.submit(self._write_pending).add_done_callback(_log_failure)
        self._thread.shutdown(wait=True)

    @asynccontextmanager
    async def admit(self, exchange: Exchange) -> AsyncIterator[None]:
        """Raises OSError or StoreCorrupt when the log cannot be written."""
        if self._pending:
            await self._flush()
        try:
            yield
        except LocalLLMError as error:
            await self._note(exchange, error)
            raise
        except (GeneratorExit, asyncio.CancelledError):
            # nobody is left to be refused: written behind the request's back
            self._pending.append(self._entry(exchange, Cancelled("The client went away.")))
            self._thread.submit(self._write_pending).add_done_callback(_log_failure)
            raise
        await self._note(exchange, None)

    async def report(self) -> AuditReport:
        """Read and check the whole log."""
        lines, fault = await asyncio.wrap_future(self._thread.submit(self._log.verify))
        said = None if fault is None else f"{fault.file}, line {fault.number}: {fault.reason}"
        return AuditReport(folder=str(self._folder), lines=lines, fault=said)

    async def _flush(self) -> None:
        await asyncio.wrap_future(self._thread.submit(self._write_pending))

    def _write_pending(self) -> None:
        while self._pending:
            self._log.append(self._pending[0])
            self._pending.popleft()
            self._written += 1

    async def _note(self, exchange: Exchange, error: LocalLLMError | None) -> None:
        self._pending.append(self._entry(exchange, error))
        await self._flush()

    def _entry(self, exchange: Exchange, error: LocalLLMError | None) -> AuditEntry:
        call = exchange.call
        status = (
            200 if error is None else CLIENT_LEFT if isinstance(error, Cancelled) else self._status_of(error)
        )
        return AuditEntry(
            at=time.time(),
            request_id=call.id,
            key=exchange.key.name if exchange.key else None,
            client=call.client,
            endpoint=call.endpoint,
            model=call.model,
            status=status,
            error_code=error.code if error else None,
            prompt_tokens=exchange.prompt_tokens if exchange.reached_engine else None,
            completion_tokens=exchange.completion_tokens if exchange.reached_engine else None,
            masked=exchange.masked,
            policies=exchange.policies,
        )


def _log_failure(done: Future[None]) -> None:
    if error := done.exception():
        log.error("the audit log cannot be written", extra={"cause": str(error)})
