"""What the endpoints of ``/v1`` share: reading a request, naming its model, and who is asking."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from localllm.api.body import read_json
from localllm.api.errors import as_error, status_of
from localllm.api.v1.parameters import ignored_fields, keep_alive_seconds
from localllm.core.control import LoadRequest, RequestRecord
from localllm.core.errors import BadName, BadRequest, ModelNotFound
from localllm.core.gateway import KeyInfo
from localllm.core.generation import Event
from localllm.core.openai import GenerationFields
from localllm.engines.base import EmbeddingResult
from localllm.service.pipeline import Call, EmbedCall
from localllm.service.runtime import Runtime

T = TypeVar("T", bound=Struct)

SERVED_BY_HEADER = "x-localllm-served-by"
IGNORED_HEADER = "x-localllm-ignored"


class Asked(Struct, frozen=True, kw_only=True):
    """Who asks, what for, and when. ``model`` is as the client spelled it, ``received`` monotonic seconds.

    ``key`` is the named key it came with; ``headers`` go out with the answer and are the policies' to fill.
    """

    id: str
    model: str
    client: str
    received: float
    created: int
    address: str
    key: KeyInfo | None
    headers: dict[str, str]


class Port:
    """The runtime as the endpoints see it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.server = runtime.settings.server
        self.pipeline = runtime.pipeline

    async def read(self, request: Request, cls: type[T]) -> tuple[T, dict[str, str]]:
        """The request's body as ``cls``, and the answer's header that names the fields nobody knows.

        Raises:
            BadRequest: a value of the wrong type or out of its range (named), or unknown fields in strict mode.
        """
        body = await read_json(
            request,
            limit_bytes=self.server.max_body_bytes,
            image_limit_bytes=self.server.max_image_body_bytes,
        )
        fields = msgspec.convert(body, cls)
        ignored = ignored_fields(body, cls.__struct_encode_fields__, strict=self.server.strict)
        return fields, {IGNORED_HEADER: _header_list(ignored)} if ignored else {}

    @contextmanager
    def noting_refusals(self, request: Request, endpoint: str) -> Iterator[None]:
        """A request that fails before it reaches the pipeline still belongs in the request log.

        Its model is named only if it exists, and it has no times: neither may spoil the metrics.
        """
        try:
            yield
        except ClientDisconnect:
            raise
        except Exception as exc:
            error = as_error(exc)
            record = RequestRecord(
                id=request.state.request_id,
                created_at=time.time(),
                endpoint=endpoint,
                model=getattr(request.state, "model", ""),
                client=client_of(request),
                status=status_of(error),
                error_code=error.code,
            )
            for observer in self.pipeline.observers:
                observer.finished(record, ())
            raise

    def asked(self, request: Request, model: str | None, prefix: str) -> Asked:
        """Raises BadRequest when no model is named and there is no default, ModelNotFound when there is no such."""
        name = model or self.runtime.settings.models.default
        if not name:
            raise BadRequest(
                "Missing required parameter: model.",
                hint="Name a model (see GET /v1/models), or set models.default.",
                param="model",
            )
        self._require_model(name)
        request.state.model = name
        return Asked(
            id=prefix + request.state.request_id.removeprefix("req_"),
            model=name,
            client=client_of(request),
            received=request.state.received,
            created=int(time.time()),
            address=address_of(request),
            key=request.state.key,
            headers=request.state.headers,
        )

    def generate(self, asked: Asked, call: Call) -> AsyncGenerator[Event, None]:
        """The events of one generation, through every policy that holds for whoever asked."""

        def served(model: str) -> None:
            asked.headers[SERVED_BY_HEADER] = _header_list((model,))

        call.on_served = served
        return self.runtime.gateway.generate(
            call, key=asked.key, address=asked.address, headers=asked.headers
        )

    async def embed(self, asked: Asked, call: EmbedCall) -> EmbeddingResult:
        return await self.runtime.gateway.embed(
            call, key=asked.key, address=asked.address, headers=asked.headers
        )

    def require_access(self, asked: Asked) -> None:
        """For what loads or asks a model without generating. Raises Forbidden when the key may not use it."""
        self.runtime.gateway.require_access(asked.key, asked.model)

    def preparation(self, fields: GenerationFields, asked: Asked) -> Callable[[], Awaitable[None]] | None:
        """What must happen before generating, for a request that asks for its own context or keep-alive."""
        keep_alive = keep_alive_seconds(fields.keep_alive)
        if keep_alive is None and fields.context_length is None:
            return None

        async def prepare() -> None:
            self.require_access(asked)
            manager = self.runtime.manager
            state = manager.state(manager.resolve(asked.model).name)
            enough = state is not None and (state.context_length or 0) >= (fields.context_length or 0)
            await manager.load(
                LoadRequest(
                    model=asked.model,
                    context_length=None if enough else fields.context_length,
                    keep_alive_seconds=keep_alive,
                )
            )

        return prepare

    def _require_model(self, name: str) -> None:
        try:
            self.runtime.manager.resolve(name)
        except BadName as error:
            # a client that speaks OpenAI's names asks for what isn't here; that its name could not be here is detail
            raise ModelNotFound(name) from error


def with_skipped(headers: dict[str, str], skipped: tuple[str, ...]) -> dict[str, str]:
    """The headers, and in ``x-localllm-ignored`` what was skipped beside the fields that are there already."""
    if not skipped:
        return headers
    already = headers.get(IGNORED_HEADER)
    return {**headers, IGNORED_HEADER: ", ".join(filter(None, (already, _header_list(skipped))))}


def client_of(request: Request) -> str:
    """Key, address and program of whoever asks, for the request log."""
    program = request.headers.get("user-agent", "").split(" ", 1)[0][:64]
    key: KeyInfo | None = getattr(request.state, "key", None)
    return " ".join(filter(None, (f"key:{key.name}" if key else "", address_of(request), program)))


def address_of(request: Request) -> str:
    return request.client.host if request.client else "?"


def _header_list(names: tuple[str, ...]) -> str:
    printable = (
        "".join(c if " " < c < "\x7f" and c != "," else "?" for c in name[:64]) for name in names[:32]
    )
    return ", ".join(printable)
