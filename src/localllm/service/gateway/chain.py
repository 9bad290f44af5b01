"""The port's policies in the one order that every request passes them, and what happens when one of them fails.

    audit → access → limits → length → content rules → masking → cache → pipeline → engine

The audit log stands outermost, so that it sees refusals; content rules judge what the client would see, so they stand
outside of the masking; the cache stands inside of it, so that it keeps no personal data. A request that no policy has
anything to do with goes straight to the pipeline and pays nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from localllm.core.config import GatewaySettings
from localllm.core.control import RequestRecord
from localllm.core.errors import LocalLLMError, PolicyFailed
from localllm.core.gateway import AuditReport, GatewayView, KeyInfo, PolicyState
from localllm.core.generation import Finished
from localllm.engines.base import EmbeddingResult
from localllm.hub.store import StoredModel
from localllm.service.gateway.access import Access
from localllm.service.gateway.audit_trail import AuditTrail
from localllm.service.gateway.caching import Caching
from localllm.service.gateway.content_rules import ContentRules, require_valid
from localllm.service.gateway.exact_cache import ExactCache
from localllm.service.gateway.length import Length
from localllm.service.gateway.masking import Masking
from localllm.service.gateway.policy import (
    Admission,
    Events,
    Exchange,
    Policy,
    Proceed,
    ProceedEmbed,
    Transform,
)
from localllm.service.gateway.rate_limits import RateLimits
from localllm.service.gateway.rules import Rules, rules_for
from localllm.service.keys import Keys
from localllm.service.pipeline import Call, EmbedCall, Pipeline

log = logging.getLogger(__name__)

P = TypeVar("P", bound=Policy)


class Gateway:
    """The pipeline as the port uses it: with every policy that the settings or the request's key ask for.

    ``resolve`` gives the model of a name; ``reach`` the names of all that may answer for it, where those can be several.

    Raises:
        ConfigInvalid: a setting of the section ``gateway`` that cannot be used.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        keys: Keys,
        settings: GatewaySettings,
        *,
        resolve: Callable[[str], StoredModel],
        reach: Callable[[str], tuple[str, ...]] | None = None,
        audit_folder: Path,
    ) -> None:
        require_valid(settings.blocked_patterns)
        self.keys = keys
        self._pipeline = pipeline
        self._settings = settings
        self._audit = AuditTrail(audit_folder, pipeline.status_of)
        reach = reach or (lambda name: (resolve(name).name,))
        self._access = Access(reach)
        cache = ExactCache(max_bytes=settings.cache_bytes, ttl_s=settings.cache_seconds)
        self._admissions: tuple[Admission, ...] = (self._audit, self._access, RateLimits(), Length())
        self._transforms: tuple[Transform, ...] = (ContentRules(), Masking(), Caching(cache, resolve, reach))
        self._default_rules = rules_for(settings)
        self._default_on = any(policy.wants(self._default_rules) for policy in self.policies)

    @property
    def policies(self) -> tuple[Policy, ...]:
        """Outermost first."""
        return (*self._admissions, *self._transforms)

    def generate(self, call: Call, *, key: KeyInfo | None, address: str, headers: dict[str, str]) -> Events:
        """The events that the client gets. ``headers`` are filled before the first of them.

        Raises (when iterated):
            LocalLLMError: what a policy or the pipeline refuses it with.
            PolicyFailed: a policy broke; it is named in the log.
        """
        if key is None and not self._default_on:
            return self._pipeline.generate(call)
        exchange = self._exchange(call, key, address, headers)
        return self._through(exchange) if exchange.policies else self._pipeline.generate(call)

    async def embed(
        self, call: EmbedCall, *, key: KeyInfo | None, address: str, headers: dict[str, str]
    ) -> EmbeddingResult:
        """As ``generate``, for embeddings."""
        if key is None and not self._default_on:
            return await self._pipeline.embed(call)
        exchange = self._exchange(call, key, address, headers)
        if not exchange.policies:
            return await self._pipeline.embed(call)
        with self._recorded(exchange):
            async with self._admitted(exchange):
                proceed: ProceedEmbed = partial(self._embed_in_pipeline, exchange)
                for transform in reversed(_wanted(self._transforms, exchange.rules)):
                    proceed = partial(_embedding_around, transform, exchange, proceed)
                return await proceed()

    def require_access(self, key: KeyInfo | None, model: str) -> None:
        """For what uses a model without generating. Raises Forbidden when the key may not use it."""
        if key is not None:
            self._access.check(model, rules_for(self._settings, key.rules))

    def view(self) -> GatewayView:
        """Every policy, whether it is on, and what it has done."""
        of_keys = [
            (info.name, rules_for(self._settings, info.rules))
            for info in self.keys.all()
            if not info.revoked_at
        ]
        return GatewayView(
            policies=tuple(
                PolicyState(
                    name=policy.name,
                    on=policy.wants(self._default_rules),
                    keys=tuple(name for name, rules in of_keys if policy.wants(rules)),
                    figures=policy.figures(),
                )
                for policy in self.policies
            ),
            keys=len(of_keys),
            key_required=self.keys.required,
        )

    async def audit(self) -> AuditReport:
        return await self._audit.report()

    def close(self) -> None:
        self._audit.close()

    # ------------------------------------------------------------ one request

    def _exchange(
        self, call: Call | EmbedCall, key: KeyInfo | None, address: str, headers: dict[str, str]
    ) -> Exchange:
        rules = self._default_rules if key is None else rules_for(self._settings, key.rules)
        return Exchange(
            call=call,
            rules=rules,
            key=key,
            address=address,
            # a key that is created again under the same name begins anew
            holder=f"key {key.name} {key.created_at}" if key else f"address {address}",
            headers=headers,
            policies=tuple(policy.name for policy in self.policies if policy.wants(rules)),
        )

    async def _through(self, exchange: Exchange) -> Events:
        with self._recorded(exchange) as seen:
            async with self._admitted(exchange):
                proceed: Proceed = partial(self._generate_in_pipeline, exchange)
                for transform in reversed(_wanted(self._transforms, exchange.rules)):
                    proceed = partial(_around, transform, exchange, proceed)
                async with aclosing(proceed()) as events:
                    async for event in events:
                        if type(event) is Finished:
                            seen.append(event)
                        yield event

    @asynccontextmanager
    async def _admitted(self, exchange: Exchange) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for policy in _wanted(self._admissions, exchange.rules):
                stack.enter_context(_naming(policy, exchange))
                await stack.enter_async_context(policy.admit(exchange))
            yield

    async def _generate_in_pipeline(self, exchange: Exchange) -> Events:
        exchange.reached_engine = True
        call = exchange.call
        assert isinstance(call, Call), "an embedding is not generated"
        with _our_fault(exchange):
            async with aclosing(self._pipeline.generate(call)) as events:
                async for event in events:
                    exchange.note(event)
                    yield event

    async def _embed_in_pipeline(self, exchange: Exchange) -> EmbeddingResult:
        exchange.reached_engine = True
        call = exchange.call
        assert isinstance(call, EmbedCall), "a generation is not embedded"
        with _our_fault(exchange):
            result = await self._pipeline.embed(call)
        exchange.prompt_tokens = result.prompt_tokens
        return result

    @contextmanager
    def _recorded(self, exchange: Exchange) -> Iterator[list[Finished]]:
        """What the pipeline never saw, a refusal or an answer from the cache, belongs in the request log all the same."""
        seen: list[Finished] = []
        failure: LocalLLMError | None = None
        try:
            yield seen
        except LocalLLMError as error:
            failure = error
            raise
        finally:
            if not exchange.reached_engine:
                self._record(exchange, seen, failure)

    def _record(self, exchange: Exchange, seen: Sequence[Finished], failure: LocalLLMError | None) -> None:
        call = exchange.call
        elapsed_s = time.monotonic() - call.received
        record = RequestRecord(
            id=call.id,
            created_at=time.time() - elapsed_s,
            endpoint=call.endpoint,
            model=call.model,
            client=call.client,
            stream=isinstance(call, Call) and call.stream,
            status=200 if failure is None else self._pipeline.status_of(failure),
            error_code=failure.code if failure else None,
            finish_reason=seen[0].reason.value if seen else None,
            total_ms=elapsed_s * 1000,
        )
        if isinstance(call, Call) and call.on_finished is not None:
            call.on_finished(record)
        for observer in self._pipeline.observers:
            observer.finished(record, ())


def _wanted(policies: Sequence[P], rules: Rules) -> list[P]:
    return [policy for policy in policies if policy.wants(rules)]


async def _around(transform: Transform, exchange: Exchange, proceed: Proceed) -> Events:
    with _naming(transform, exchange):
        async with aclosing(transform.around(exchange, proceed)) as events:
            async for event in events:
                yield event


async def _embedding_around(
    transform: Transform, exchange: Exchange, proceed: ProceedEmbed
) -> EmbeddingResult:
    with _naming(transform, exchange):
        return await transform.around_embedding(exchange, proceed)


@contextmanager
def _naming(policy: Policy, exchange: Exchange) -> Iterator[None]:
    """What a policy did not foresee ends the request with an error of its own, and the log says which policy it was."""
    try:
        yield
    except LocalLLMError:
        raise
    except Exception as error:
        log.exception("a policy failed", extra={"policy": policy.name, "request_id": exchange.call.id})
        raise PolicyFailed(
            f"The policy {policy.name!r} could not do its work, so the request was not answered.",
            hint="The log has the details: localllm logs",
            details={"policy": policy.name},
        ) from error


@contextmanager
def _our_fault(exchange: Exchange) -> Iterator[None]:
    """An unforeseen error of the pipeline is no policy's: named here, before it passes them."""
    try:
        yield
    except LocalLLMError:
        raise
    except Exception as error:
        log.exception("request failed", extra={"request_id": exchange.call.id})
        raise LocalLLMError(
            "Something went wrong inside localllm.", hint="The log has the details: localllm logs"
        ) from error
