"""``GET /v1/models`` and ``GET /v1/models/{id}``."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from localllm.api.v1.port import Port
from localllm.core.errors import BadName, ModelNotFound
from localllm.core.openai import ModelListReply, ModelReply
from localllm.engines.base import InstanceInfo
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
        instances = (each.instance for each in self._runtime.manager.serving() if each.name == model.name)
        return model_reply(model, [instance.info for instance in instances if instance is not None])


def model_reply(model: StoredModel, loaded: Sequence[InstanceInfo]) -> ModelReply:
    """A stored model as clients see it; ``loaded`` are its running forms (one for answers, one for embeddings)."""
    context_length = loaded[0].context_length if loaded else None
    capabilities = {*model.capabilities, *(each.value for info in loaded for each in info.capabilities)}
    return ModelReply(
        id=model.name,
        created=int(model.added_at),
        owned_by=model.owner,
        context_length=context_length,
        max_model_len=context_length,
        max_context_length=model.trained_context_length,
        capabilities=sorted(capabilities),
        loaded=bool(loaded),
        size_bytes=model.size_bytes,
        quantization=model.quant,
        parameters=model.parameters,
        architecture=model.architecture,
        engine=loaded[0].engine if loaded else None,
    )


def _json(reply: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(reply), media_type="application/json")
