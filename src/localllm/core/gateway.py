"""The wire types of named keys and of the port's policies: what ``/localllm/keys``, ``/gateway`` and ``/audit`` say."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from localllm.core.generation import Tier

Amount = Annotated[int, Meta(ge=1, le=1 << 40)]
Pattern = Annotated[str, Meta(min_length=1, max_length=1024)]


class KeyRules(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What holds for one key. Null: as the ``gateway`` settings say.

    ``models`` are the only models it may use (empty = all), ``tier`` is the best service tier it gets,
    ``max_output_tokens`` caps each of its answers.
    """

    requests_per_minute: Amount | None = None
    tokens_per_minute: Amount | None = None
    concurrent_requests: Amount | None = None
    daily_tokens: Amount | None = None
    max_output_tokens: Amount | None = None
    models: tuple[str, ...] = ()
    tier: Tier | None = None
    cache: bool | None = None
    mask_pii: bool | None = None
    blocked_patterns: tuple[Pattern, ...] | None = None
    audit: bool | None = None


class KeyRequest(Struct, frozen=True, kw_only=True):
    """``name`` is for people: at most 64 letters, digits, ``_``, ``.`` and ``-``, the first a letter or digit."""

    name: str
    rules: KeyRules = KeyRules()


class KeyInfo(Struct, frozen=True, kw_only=True):
    """A key as it is known afterwards: never the key itself, only how it ends. Times are Unix seconds."""

    name: str
    ends_with: str
    created_at: float
    revoked_at: float | None = None
    rules: KeyRules = KeyRules()


class KeyCreated(Struct, frozen=True, kw_only=True):
    """``key`` is shown this once; only its hash is kept."""

    key: str
    info: KeyInfo


class KeyList(Struct, frozen=True):
    keys: tuple[KeyInfo, ...]


class PolicyState(Struct, frozen=True, kw_only=True):
    """One policy. ``on``: for requests without a key of their own rules; ``keys`` have it on by their own rules.

    ``figures`` are its counters since the service started.
    """

    name: str
    on: bool
    keys: tuple[str, ...] = ()
    figures: dict[str, int] = {}


class GatewayView(Struct, frozen=True, kw_only=True):
    """The policies in the order a request passes them."""

    policies: tuple[PolicyState, ...]
    keys: int = 0
    key_required: bool = False


class AuditReport(Struct, frozen=True, kw_only=True):
    """``lines`` that hold; ``fault`` says, in words, which is the first that does not (null: all do)."""

    folder: str
    lines: int
    fault: str | None = None
