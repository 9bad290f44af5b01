"""The port's ASGI application: which path is answered by what, and the gates a request passes on its way there.

Outermost first: ids and error answers (``boundary``), Host and Origin (``origins``), keys (``keys``), then routing. The
gates are plain ASGI and hand ``receive`` through untouched, since that is how a departed client is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from localllm.api.boundary import Boundary
from localllm.api.control import routes as control_routes
from localllm.api.health import Health
from localllm.api.keys import KeyGate
from localllm.api.ollama import ollama_routes
from localllm.api.openapi import OpenAPI
from localllm.api.origins import OriginGate, is_loopback
from localllm.api.v1.anthropic import Messages
from localllm.api.v1.chat import ChatCompletions
from localllm.api.v1.completions import Completions
from localllm.api.v1.embeddings import Embeddings
from localllm.api.v1.models import Models
from localllm.api.v1.port import Port
from localllm.api.v1.responses import Responses
from localllm.api.v1.tokens import Tokens
from localllm.core.errors import NotFound
from localllm.service.runtime import Runtime


def build_app(runtime: Runtime) -> ASGIApp:
    """Everything the service answers, on one port. ``runtime.identity.host`` is where it is bound."""
    return gated([*port_routes(runtime), *control_routes(runtime)], runtime)


def gated(routes: Sequence[BaseRoute], runtime: Runtime) -> ASGIApp:
    """These routes behind every gate of the port."""
    server = runtime.settings.server
    bound_host = runtime.identity.host
    app: ASGIApp = PortRouter(routes)
    app = KeyGate(
        app,
        api_keys=server.api_keys,
        admin_key=runtime.admin_key,
        named=runtime.keys,
        require_key=not is_loopback(bound_host),
    )
    app = OriginGate(
        app, bound_host=bound_host, allowed_hosts=server.allowed_hosts, origins=server.cors_origins
    )
    return Boundary(app)


def port_routes(runtime: Runtime) -> list[BaseRoute]:
    """The OpenAI-compatible endpoints, each with and without ``/v1``, and the probes."""
    port = Port(runtime)
    health = Health(runtime)
    models = Models(port)
    responses = Responses(port)
    messages = Messages(port)
    tokens = Tokens(port)
    endpoints = [
        ("/chat/completions", ChatCompletions(port).create, "POST"),
        ("/completions", Completions(port).create, "POST"),
        ("/embeddings", Embeddings(port).create, "POST"),
        ("/messages", messages.create, "POST"),
        ("/messages/count_tokens", messages.count_tokens, "POST"),
        ("/responses", responses.create, "POST"),
        ("/responses/{id}", responses.get, "GET"),
        ("/responses/{id}", responses.delete, "DELETE"),
        ("/tokenize", tokens.tokenize, "POST"),
        ("/detokenize", tokens.detokenize, "POST"),
        ("/models", models.list, "GET"),
        ("/models/{model:path}", models.get, "GET"),
        ("/openapi.json", OpenAPI().get, "GET"),
        ("/health", health.health, "GET"),
        ("/ready", health.ready, "GET"),
        ("/metrics", health.metrics, "GET"),
    ]
    routes = [
        Route(prefix + path, endpoint, methods=[method])
        for prefix in ("/v1", "")
        for path, endpoint, method in endpoints
    ]
    return [*routes, *ollama_routes(port)]


class PortRouter:
    """Starlette's router, with OPTIONS answered for every path and unknown paths in the port's error form."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self.routes = list(routes)
        self._router = Router(self.routes, redirect_slashes=False, default=_nothing_here)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        scope["app"] = self  # its presence makes Starlette raise a 405 instead of answering it in plain text
        if scope["method"] == "OPTIONS":
            await self._options(scope)(scope, receive, send)
            return
        await self._router(scope, receive, send)

    def _options(self, scope: Scope) -> Response:
        methods = {"OPTIONS"}
        for route in self.routes:
            if route.matches(scope)[0] is not Match.NONE:
                methods.update(getattr(route, "methods", None) or ())
        if len(methods) == 1:
            raise NotFound("There is nothing at this path.")
        return Response(status_code=204, headers={"allow": ", ".join(sorted(methods))})


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    path = Request(scope).url.path
    raise NotFound(f"There is nothing at {path[:256]}.", hint="The port's paths begin with /v1/.")
