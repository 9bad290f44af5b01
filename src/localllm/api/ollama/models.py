"""What models there are, which are loaded, and what is known of one: tags, ps, show, version."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from localllm._version import __version__
from localllm.api.v1.port import Port
from localllm.core.errors import BadName, BadRequest, ModelNotFound
from localllm.core.ollama_api import (
    OllamaDetails,
    OllamaModel,
    OllamaModelList,
    OllamaRunning,
    OllamaRunningList,
    OllamaShowReply,
    OllamaShowRequest,
    OllamaVersion,
)
from localllm.core.units import format_count
from localllm.hub.store import StoredModel

_CAPABILITIES = {"completion": "completion", "chat": "completion", "tools": "tools", "vision": "vision"} | {
    "embedding": "embedding",
    "reasoning": "thinking",
}


class OllamaModels:
    def __init__(self, port: Port) -> None:
        self._port = port
        self._manager = port.runtime.manager

    async def version(self, request: Request) -> Response:
        return _json(OllamaVersion(__version__))

    async def tags(self, request: Request) -> Response:
        return _json(OllamaModelList([_listed(model) for model in self._manager.source.list()]))

    async def running(self, request: Request) -> Response:
        """The models that can answer; one that is only loading is not among them."""
        loaded = [resident.name for resident in self._manager.serving()]
        return _json(OllamaRunningList([self._running(name) for name in dict.fromkeys(loaded)]))

    async def show(self, request: Request) -> Response:
        fields, _ = await self._port.read(request, OllamaShowRequest)
        name = fields.model or fields.name
        if not name:
            raise BadRequest("Missing required parameter: model.", param="model")
        model = self._manager.resolve(known_name(self._port, name))
        info: dict[str, object] = {"general.architecture": model.architecture}
        if model.parameters is not None:
            info["general.parameter_count"] = model.parameters
        if model.trained_context_length is not None:
            info[f"{model.architecture}.context_length"] = model.trained_context_length
        said = {_CAPABILITIES[each] for each in model.capabilities if each in _CAPABILITIES}
        return _json(
            OllamaShowReply(
                license=model.licence or "",
                template=model.chat_template or "",
                details=_details(model),
                model_info=info,
                capabilities=sorted(said),
                modified_at=_time(model.added_at),
            )
        )

    def _running(self, name: str) -> OllamaRunning:
        model, state = self._manager.resolve(name), self._manager.state(name)
        size = ((state.measured_bytes or state.planned_bytes) if state else None) or model.size_bytes
        return OllamaRunning(
            name=model.name,
            model=model.name,
            size=size,
            digest=model.sha256 or "",
            details=_details(model),
            expires_at="9999-12-31T23:59:59Z",
            size_vram=size if state and state.gpu_layers else 0,
            context_length=state.context_length if state else None,
        )


def known_name(port: Port, name: str) -> str:
    """The name as the store has it: Ollama's clients add ``:latest`` to a name without a tag.

    Raises:
        ModelNotFound: there is no such model, or it could not be a name.
    """
    try:
        return port.runtime.manager.resolve(name).name
    except (ModelNotFound, BadName) as error:
        if not name.endswith(":latest"):
            raise ModelNotFound(name) from error
    return port.runtime.manager.resolve(name.removesuffix(":latest")).name


def _listed(model: StoredModel) -> OllamaModel:
    return OllamaModel(
        name=model.name,
        model=model.name,
        modified_at=_time(model.added_at),
        size=model.size_bytes,
        digest=model.sha256 or "",
        details=_details(model),
    )


def _details(model: StoredModel) -> OllamaDetails:
    family = model.architecture or ""
    return OllamaDetails(
        family=family,
        families=[family] if family else [],
        parameter_size=format_count(model.parameters) if model.parameters else "",
        quantization_level=model.quant or "",
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _json(reply: Struct) -> Response:
    return Response(msgspec.json.encode(reply), media_type="application/json")
