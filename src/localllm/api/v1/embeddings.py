"""``POST /v1/embeddings``."""

from __future__ import annotations

import base64
import math
import struct

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from localllm.api.connection import ClientLeft, while_connected
from localllm.api.v1.inputs import separate
from localllm.api.v1.port import Asked, Port
from localllm.api.v1.respond import send_json
from localllm.core.errors import BadRequest
from localllm.core.openai import EmbeddingItem, EmbeddingReply, EmbeddingRequest, EmbeddingUsage
from localllm.service.pipeline import EmbedCall

MAX_INPUTS = 2048


class Embeddings:
    def __init__(self, port: Port) -> None:
        self._port = port

    async def create(self, request: Request) -> EmbeddingAnswer:
        with self._port.noting_refusals(request, "embeddings"):
            return await self._answer(request)

    async def _answer(self, request: Request) -> EmbeddingAnswer:
        fields, headers = await self._port.read(request, EmbeddingRequest)
        inputs = separate(fields.input, "input", most=MAX_INPUTS)
        asked = self._port.asked(request, fields.model, "embd-")
        call = EmbedCall(
            id=asked.id,
            endpoint="embeddings",
            model=asked.model,
            inputs=inputs,
            client=asked.client,
            received=asked.received,
        )
        return EmbeddingAnswer(self._port, asked, call, fields, headers)


class EmbeddingAnswer:
    """Embeds as long as the client is there to be answered."""

    def __init__(
        self, port: Port, asked: Asked, call: EmbedCall, fields: EmbeddingRequest, headers: dict[str, str]
    ) -> None:
        self._port = port
        self._asked = asked
        self._call = call
        self._fields = fields
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            result = await while_connected(receive, self._port.embed(self._asked, self._call))
        except ClientLeft:
            return
        vectors = [shortened(vector, self._fields.dimensions) for vector in result.vectors]
        as_text = self._fields.encoding_format == "base64"
        reply = EmbeddingReply(
            data=[
                EmbeddingItem(index=index, embedding=to_base64(vector) if as_text else vector)
                for index, vector in enumerate(vectors)
            ],
            model=self._call.model,
            usage=EmbeddingUsage(result.prompt_tokens, result.prompt_tokens),
        )
        await send_json(send, msgspec.json.encode(reply), self._headers)


def shortened(vector: tuple[float, ...], dimensions: int | None) -> tuple[float, ...]:
    """The first ``dimensions`` values, brought back to unit length, as Matryoshka embeddings are cut.

    Raises:
        BadRequest: more dimensions than the model has.
    """
    if dimensions is None or dimensions == len(vector):
        return vector
    if dimensions > len(vector):
        raise BadRequest(f"This model's embeddings have {len(vector)} dimensions.", param="dimensions")
    kept = vector[:dimensions]
    length = math.sqrt(math.fsum(value * value for value in kept))
    return tuple(value / length for value in kept) if length > 0 else kept


def to_base64(vector: tuple[float, ...]) -> str:
    """Little-endian float32, which is what the official SDKs ask for and decode."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
