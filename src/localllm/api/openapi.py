"""The port's own OpenAPI document, ``GET /openapi.json``: made from the wire types, so it cannot say anything else.

The table below is all that is written by hand: which path takes what, gives what, and whether it streams. A test holds
it to the routes that there are, and the answers to the schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from localllm._version import __version__
from localllm.core import anthropic, openai, responses

_ERRORS = {
    400: "The request is at fault; `param` names the field.",
    401: "No key, or one that is not accepted.",
    403: "Not for this key, host or origin.",
    404: "There is no such model, or nothing of that name.",
    408: "The request stopped arriving.",
    409: "The model changed while it was in use.",
    413: "The request is too large.",
    415: "Not JSON, or packed in an unknown way.",
    429: "A limit, a quota, or a full queue; `Retry-After` says when.",
    500: "The engine or a policy failed; `x-should-retry` says whether it may help to ask again.",
    503: "The model cannot be loaded, or the service is stopping.",
    504: "The engine gave no token for too long.",
}


class Error(Struct, frozen=True, kw_only=True):
    """``hint`` says what to do, ``details`` carry figures."""

    message: str
    type: str
    param: str | None
    code: str
    hint: str | None = None
    details: dict[str, object] = {}


class ErrorReply(Struct, frozen=True):
    error: Error


class StatusReply(Struct, frozen=True, kw_only=True):
    status: str
    models: list[str] = []


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one path. ``reply`` None: plain text."""

    method: str
    path: str
    summary: str
    request: type[Struct] | None = None
    reply: type[Struct] | None = None
    streams: bool = False
    error: type[Struct] = ErrorReply

    @property
    def id(self) -> str:
        words = self.path.replace("{", "").replace("}", "").strip("/").split("/")
        return "_".join((self.method.lower(), *words)).replace(".", "_")


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="POST",
        path="/chat/completions",
        summary="An answer to a conversation",
        request=openai.ChatRequest,
        reply=openai.ChatReply,
        streams=True,
    ),
    Operation(
        method="POST",
        path="/completions",
        summary="A text continued",
        request=openai.CompletionRequest,
        reply=openai.CompletionReply,
        streams=True,
    ),
    Operation(
        method="POST",
        path="/responses",
        summary="A response, which a later one may go on from",
        request=responses.ResponsesRequest,
        reply=responses.ResponseReply,
        streams=True,
    ),
    Operation(
        method="GET",
        path="/responses/{id}",
        summary="A response that is kept",
        reply=responses.ResponseReply,
    ),
    Operation(
        method="DELETE",
        path="/responses/{id}",
        summary="Forget a response",
        reply=responses.ResponseDeleted,
    ),
    Operation(
        method="POST",
        path="/messages",
        summary="A message, as Anthropic's API has it",
        request=anthropic.MessagesRequest,
        reply=anthropic.MessageReply,
        streams=True,
        error=anthropic.AnthropicError,
    ),
    Operation(
        method="POST",
        path="/messages/count_tokens",
        summary="The tokens that a message's prompt takes",
        request=anthropic.CountTokensRequest,
        reply=anthropic.TokenCount,
        error=anthropic.AnthropicError,
    ),
    Operation(
        method="POST",
        path="/embeddings",
        summary="Vectors of texts",
        request=openai.EmbeddingRequest,
        reply=openai.EmbeddingReply,
    ),
    Operation(
        method="POST",
        path="/tokenize",
        summary="A text's tokens, or how many a conversation takes",
        request=openai.TokenizeRequest,
        reply=openai.TokenizeReply,
    ),
    Operation(
        method="POST",
        path="/detokenize",
        summary="The text of tokens",
        request=openai.DetokenizeRequest,
        reply=openai.DetokenizeReply,
    ),
    Operation(method="GET", path="/models", summary="The models that are here", reply=openai.ModelListReply),
    Operation(method="GET", path="/models/{model}", summary="One model", reply=openai.ModelReply),
    Operation(method="GET", path="/health", summary="Whether the service is alive", reply=StatusReply),
    Operation(
        method="GET", path="/ready", summary="Whether a loaded model answers; 503 if none", reply=StatusReply
    ),
    Operation(method="GET", path="/metrics", summary="Figures for Prometheus"),
)


def document(version: str = __version__) -> dict[str, Any]:
    """The OpenAPI 3.1 document, ready for JSON."""
    types = list(dict.fromkeys(_types(OPERATIONS)))
    schemas, components = msgspec.json.schema_components(
        types, schema_hook=_anything, ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(f"/v1{operation.path}", {})[operation.method.lower()] = _operation(
            operation, schema_of
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "localllm", "version": version, "description": "Language models of this machine."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"header": []}],
    }


class OpenAPI:
    """Serves the document; made when it is first asked for, since nothing else needs it."""

    def __init__(self) -> None:
        self._body: bytes | None = None

    async def get(self, request: Request) -> Response:
        if self._body is None:
            self._body = msgspec.json.encode(document())
        return Response(self._body, media_type="application/json")


def _types(operations: Sequence[Operation]) -> Iterator[type[Struct]]:
    for operation in operations:
        yield from filter(None, (operation.request, operation.reply, operation.error))


def _operation(operation: Operation, schema_of: dict[type[Struct], Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": operation.id, "summary": operation.summary}
    if "{" in operation.path:
        name = operation.path.rpartition("{")[2].rstrip("}")
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        ]
    if operation.request is not None:
        content = {"application/json": {"schema": schema_of[operation.request]}}
        described["requestBody"] = {"required": True, "content": content}
    described["responses"] = {
        "200": {"description": "The answer", "content": _content(operation, schema_of)},
        **{
            str(status): {
                "description": text,
                "content": {"application/json": {"schema": schema_of[operation.error]}},
            }
            for status, text in _ERRORS.items()
        },
    }
    if operation.path == "/ready":
        described["responses"]["503"] = {
            "description": "No loaded model answers",
            "content": {"application/json": {"schema": schema_of[StatusReply]}},
        }
    return described


def _content(operation: Operation, schema_of: dict[type[Struct], Any]) -> dict[str, Any]:
    if operation.reply is None:
        return {"text/plain": {"schema": {"type": "string"}}}
    content: dict[str, Any] = {"application/json": {"schema": schema_of[operation.reply]}}
    if operation.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return content


def _anything(kind: type) -> dict[str, object]:
    """``object`` in a wire type means any JSON value."""
    if kind is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError(kind)
