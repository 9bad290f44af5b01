"""Which rules hold for a request: the ``gateway`` settings, and over them what its key has of its own."""

from __future__ import annotations

from msgspec import Struct

from localllm.core.config import GatewaySettings
from localllm.core.gateway import KeyRules
from localllm.core.generation import Tier
from localllm.service.gateway.limits import Limits


class Rules(Struct, frozen=True, kw_only=True):
    """Nothing by default. Each policy reads its own fields and no others."""

    limits: Limits = Limits()
    models: tuple[str, ...] = ()
    best_tier: Tier | None = None
    max_output_tokens: int | None = None
    cache: bool = False
    mask_pii: bool = False
    blocked_patterns: tuple[str, ...] = ()
    audit: bool = False


def rules_for(settings: GatewaySettings, own: KeyRules | None = None) -> Rules:
    """The settings where the key says nothing."""
    own = own or KeyRules()
    return Rules(
        limits=Limits(
            requests=_either(own.requests_per_minute, settings.requests_per_minute),
            tokens=_either(own.tokens_per_minute, settings.tokens_per_minute),
            concurrent=_either(own.concurrent_requests, settings.concurrent_requests),
            daily_tokens=_either(own.daily_tokens, settings.daily_tokens),
        ),
        models=own.models,
        best_tier=own.tier,
        max_output_tokens=own.max_output_tokens,
        cache=settings.cache if own.cache is None else own.cache,
        mask_pii=settings.mask_pii if own.mask_pii is None else own.mask_pii,
        blocked_patterns=settings.blocked_patterns if own.blocked_patterns is None else own.blocked_patterns,
        audit=settings.audit if own.audit is None else own.audit,
    )


def _either(own: int | None, default: int | None) -> int | None:
    return default if own is None else own
