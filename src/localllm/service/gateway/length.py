"""How long one answer of a key may get. (The ceiling for everybody is ``server.max_output_tokens``.)"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from msgspec import structs

from localllm.service.gateway.policy import Admission, Exchange
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import Call


class Length(Admission):
    name: ClassVar[str] = "length"

    def __init__(self) -> None:
        self._capped = 0

    def wants(self, rules: Rules) -> bool:
        return rules.max_output_tokens is not None

    def figures(self) -> dict[str, int]:
        return {"capped": self._capped}

    @asynccontextmanager
    async def admit(self, exchange: Exchange) -> AsyncIterator[None]:
        call, most = exchange.call, exchange.rules.max_output_tokens
        if isinstance(call, Call) and most is not None:
            asked = call.request.max_tokens
            if asked is None or asked > most:
                self._capped += 1
                exchange.call = structs.replace(call, request=structs.replace(call.request, max_tokens=most))
        yield
