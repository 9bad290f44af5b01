"""``GET /v1/models`` and ``GET /v1/models/{id}``."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from localllm.api.v1.port import Port
from localllm.core.control import InstanceState
from localllm.core.errors import BadName, ModelNotFound
from localllm.core.openai import ModelListReply, ModelReply
from localllm.hub.store import StoredModel


class Models:
    def __init__(self, port: Port) -> None:
        self._runtime = port.runtime

    async def list(self, request: Request) -> Response:
        models = self._runtime.manager.source.list()
        return _json(ModelListReply(data=[self._reply(model) for model in models]))

    async def get(self, request: Request) -> Response:
        name = request.path_params["model"]
        try:
            model = self._runtime.manager.resolve(name)
        except BadName as error:
            raise ModelNotFound(name) from error
        return _json(self._reply(model))

    def _reply(self, model: StoredModel) -> ModelReply:
        return model_reply(model, self._runtime.manager.state(model.name))


def model_reply(model: StoredModel, state: InstanceState | None) -> ModelReply:
    """A stored model as clients see it; ``state`` is what is loaded of it, if anything is."""
    context_length = state.context_length if state else None
    return ModelReply(
        id=model.name,
        created=int(model.added_at),
        owned_by=model.owner,
        context_length=context_length,
        max_model_len=context_length,
        max_context_length=model.trained_context_length,
        capabilities=list(model.capabilities),
        loaded=context_length is not None,
        size_bytes=model.size_bytes,
        quantization=model.quant,
        parameters=model.parameters,
        architecture=model.architecture,
        engine=state.engine if state else None,
    )


def _json(reply: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(reply), media_type="application/json")
