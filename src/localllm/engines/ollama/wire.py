"""The shapes of Ollama's native API, as far as they are read (docs/api.md of Ollama 0.24; older ones lack fields)."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.json import Decoder


class CalledFunction(Struct):
    name: str = ""
    arguments: dict[str, object] = {}


class Called(Struct):
    function: CalledFunction = field(default_factory=CalledFunction)


class AnswerMessage(Struct):
    content: str = ""
    thinking: str = ""
    tool_calls: list[Called] = []


class TokenChance(Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[TokenChance] = []


class Line(Struct):
    """One line of a stream, of ``/api/chat`` (``message``) or ``/api/generate`` (``response``); times in nanoseconds.

    ``error`` may come inside an answer whose status was 200.
    """

    message: AnswerMessage | None = None
    response: str = ""
    thinking: str = ""
    logprobs: list[TokenChance] | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    prompt_eval_duration: int = 0
    eval_count: int | None = None
    eval_duration: int = 0
    load_duration: int = 0
    error: str | None = None


class ErrorBody(Struct):
    error: str = ""


class Version(Struct):
    version: str = ""


class Resident(Struct):
    """A model in ``/api/ps``. ``size`` is all it takes, ``size_vram`` the part on GPUs; bytes."""

    name: str
    size: int = 0
    size_vram: int = 0
    context_length: int | None = None


class Residents(Struct):
    models: list[Resident] = []


class Shown(Struct):
    """``/api/show``: ``model_info`` are the GGUF's figures by their keys."""

    capabilities: list[str] = []
    template: str = ""
    model_info: dict[str, object] = {}


class Embedded(Struct):
    embeddings: list[list[float]] = []
    prompt_eval_count: int | None = None


line_decoder: Decoder[Line] = Decoder(Line)
error_decoder: Decoder[ErrorBody] = Decoder(ErrorBody)
