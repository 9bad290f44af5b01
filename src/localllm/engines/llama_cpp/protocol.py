"""What service and worker say to each other: msgpack frames, each after its length in four bytes (big-endian).

Requests carry a number that the parent chose; answers carry it back. All events of one step go out in one ``Step``
frame, so that a batch of eight costs one write and one wake-up.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from localllm.core.errors import LocalLLMError, from_code
from localllm.core.generation import Event, GenerationRequest, Prompt
from localllm.core.launch import LaunchPlan

HEADER_BYTES = 4
LONGEST_FRAME_BYTES = 256 << 20

# ---------------------------------------------------------------- parent to worker


class Load(Struct, frozen=True, tag="load"):
    plan: LaunchPlan


class Generate(Struct, frozen=True, tag="generate"):
    number: int
    request: GenerationRequest


class Cancel(Struct, frozen=True, tag="cancel"):
    number: int


class Embed(Struct, frozen=True, tag="embed"):
    number: int
    inputs: tuple[str | tuple[int, ...], ...]


class Count(Struct, frozen=True, tag="count"):
    number: int
    prompt: Prompt


class Tokenize(Struct, frozen=True, tag="tokenize"):
    number: int
    text: str
    add_special: bool


class Detokenize(Struct, frozen=True, tag="detokenize"):
    number: int
    tokens: tuple[int, ...]


class ReadStats(Struct, frozen=True, tag="stats"):
    number: int


class Ping(Struct, frozen=True, tag="ping"):
    number: int


Command = Load | Generate | Cancel | Embed | Count | Tokenize | Detokenize | ReadStats | Ping
Preparable = Generate | Count | Tokenize | Detokenize
"""Commands that take time before the model is needed, or never need it."""

# ---------------------------------------------------------------- worker to parent


class Loading(Struct, frozen=True, tag="loading"):
    """``fraction`` of the weights, 0…1."""

    fraction: float


class Ready(Struct, frozen=True, kw_only=True, tag="ready"):
    """The model is loaded. ``capabilities`` are names of ``Capability``."""

    version: str
    context_length: int
    layers: int
    capabilities: tuple[str, ...]
    template_source: str | None
    warnings: tuple[str, ...]


class Problem(Struct, frozen=True, kw_only=True):
    """An error as it crosses the process boundary."""

    code: str
    message: str
    hint: str | None = None
    param: str | None = None
    details: dict[str, object] = {}

    @classmethod
    def of(cls, error: LocalLLMError) -> Problem:
        return cls(
            code=error.code,
            message=error.message,
            hint=error.hint,
            param=error.param,
            details=error.details,
        )

    def error(self) -> LocalLLMError:
        return from_code(self.code, self.message, hint=self.hint, param=self.param, details=self.details)


class LoadFailure(Struct, frozen=True, tag="load_failure"):
    problem: Problem


class Step(Struct, frozen=True, tag="step"):
    """Events of any number of generations, in order; a generation ends with ``Usage`` or with a failure."""

    events: list[tuple[int, Event]]
    failures: list[tuple[int, Problem]] = []


class Vectors(Struct, frozen=True, tag="vectors"):
    """``data`` are float32 vectors, little-endian, one after the other."""

    number: int
    data: bytes
    width: int
    prompt_tokens: int


class Counted(Struct, frozen=True, tag="counted"):
    number: int
    tokens: int


class Tokens(Struct, frozen=True, tag="tokens"):
    number: int
    tokens: tuple[int, ...]


class Text(Struct, frozen=True, tag="text"):
    number: int
    text: str


class Pong(Struct, frozen=True, tag="pong"):
    number: int


class Stats(Struct, frozen=True, kw_only=True, tag="stats"):
    """Readings and totals since loading; seconds are wall time of the worker's one model thread."""

    number: int
    running: int
    waiting: int
    waiting_by_tier: dict[str, int]
    kv_used_tokens: int
    kv_total_tokens: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    prefilled_tokens: int
    decoded_rows: int
    preemptions: int
    steps: int
    step_s: float
    decode_s: float
    sampling_s: float


class Failed(Struct, frozen=True, tag="failed"):
    """A request other than a generation could not be served."""

    number: int
    problem: Problem


Reply = Vectors | Counted | Tokens | Text | Pong | Stats | Failed
Report = Loading | Ready | LoadFailure | Step | Reply

# ---------------------------------------------------------------- frames

_encoder = msgspec.msgpack.Encoder()
command_decoder = msgspec.msgpack.Decoder(Command)
report_decoder: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def frame(message: Command | Report) -> bytes:
    """One message as its frame."""
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER_BYTES, "big") + body
