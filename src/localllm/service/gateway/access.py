"""Which models a key may use, and the best service tier it gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

from msgspec import structs

from localllm.core.errors import Forbidden, HubError
from localllm.core.generation import Tier
from localllm.hub.store import StoredModel
from localllm.service.gateway.policy import Admission, Exchange
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import Call

_BEST_FIRST = (Tier.PRIORITY, Tier.DEFAULT, Tier.FLEX)


class Access(Admission):
    name: ClassVar[str] = "access"

    def __init__(self, resolve: Callable[[str], StoredModel]) -> None:
        self._resolve = resolve
        self._refused = 0

    def wants(self, rules: Rules) -> bool:
        return bool(rules.models) or rules.best_tier is not None

    def figures(self) -> dict[str, int]:
        return {"refused": self._refused}

    @asynccontextmanager
    async def admit(self, exchange: Exchange) -> AsyncIterator[None]:
        """Raises Forbidden for a model that the key may not use; a tier too good for it becomes its best."""
        call, rules = exchange.call, exchange.rules
        if rules.models and self._resolve(call.model).name not in self._allowed(rules):
            self._refused += 1
            raise Forbidden(
                f"This key may not use the model {call.model!r}.",
                hint=f"It may use: {', '.join(rules.models)}.",
                param="model",
            )
        if rules.best_tier is not None and isinstance(call, Call):
            tier = max(call.request.tier, rules.best_tier, key=_BEST_FIRST.index)
            exchange.call = structs.replace(call, request=structs.replace(call.request, tier=tier))
        yield

    def _allowed(self, rules: Rules) -> set[str]:
        """The names as the store has them; one that is not here allows nothing."""
        known = set(rules.models)
        for name in rules.models:
            try:
                known.add(self._resolve(name).name)
            except HubError:
                continue
        return known
