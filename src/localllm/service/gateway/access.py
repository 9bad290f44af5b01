"""Which models a key may use, and the best service tier it gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

from msgspec import structs

from localllm.core.errors import Forbidden, HubError
from localllm.core.generation import Tier
from localllm.service.gateway.policy import Admission, Exchange
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import Call

_BEST_FIRST = (Tier.PRIORITY, Tier.DEFAULT, Tier.FLEX)


class Access(Admission):
    name: ClassVar[str] = "access"

    def __init__(self, reach: Callable[[str], tuple[str, ...]]) -> None:
        self._reach = reach
        self._refused = 0

    def wants(self, rules: Rules) -> bool:
        return bool(rules.models) or rules.best_tier is not None

    def figures(self) -> dict[str, int]:
        return {"refused": self._refused}

    @asynccontextmanager
    async def admit(self, exchange: Exchange) -> AsyncIterator[None]:
        """Raises Forbidden for a model that the key may not use; a tier too good for it becomes its best."""
        call, rules = exchange.call, exchange.rules
        self.check(call.model, rules)
        if rules.best_tier is not None and isinstance(call, Call):
            tier = max(call.request.tier, rules.best_tier, key=_BEST_FIRST.index)
            exchange.call = structs.replace(call, request=structs.replace(call.request, tier=tier))
        yield

    def check(self, model: str, rules: Rules) -> None:
        """Raises Forbidden unless the key may use every model that could answer for this name.

        An alias that is listed itself allows whatever it stands for; any other one must not lead past the list.
        """
        if not rules.models or model in rules.models:
            return
        allowed = {reached for listed in rules.models for reached in self._known(listed)}
        if not allowed.issuperset(self._reach(model)):
            self._refused += 1
            raise Forbidden(
                f"This key may not use the model {model!r}.",
                hint=f"It may use: {', '.join(rules.models)}.",
                param="model",
            )

    def _known(self, listed: str) -> tuple[str, ...]:
        try:
            return self._reach(listed)
        except HubError:
            return ()  # one that is not here allows nothing
