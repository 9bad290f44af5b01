"""Which of Ollama's paths is answered by what."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from localllm.api.ollama.answering import Answering
from localllm.api.ollama.models import OllamaModels
from localllm.api.v1.port import Port


def ollama_routes(port: Port) -> list[BaseRoute]:
    models, answering = OllamaModels(port), Answering(port)
    table = [
        ("GET", "/version", models.version),
        ("GET", "/tags", models.tags),
        ("GET", "/ps", models.running),
        ("POST", "/show", models.show),
        ("POST", "/chat", answering.chat),
        ("POST", "/generate", answering.generate),
        ("POST", "/embed", answering.embed),
    ]
    return [Route(f"/api{path}", endpoint, methods=[method]) for method, path, endpoint in table]
