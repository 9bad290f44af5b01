"""The engine contract: what every engine can be asked, and what it must keep.

An ``Engine`` knows whether it can run here and loads a model from a launch plan; an ``Instance`` is one loaded
model. ``tests/contract`` holds every engine to the same suite. The rules, each tested there:

* ``generate`` streams ``Started`` once, before any text; then text, reasoning and tool calls; one ``Finished`` per
  choice; ``Usage`` once, last. Errors are raised (a ``LocalLLMError``), never sent as text.
* Closing the iterator (``aclose``) frees its place in the engine within a second, in any phase.
* A prompt that is too long raises ``ContextLengthExceeded`` before any event; nothing is ever cut.
* What a request asks for and the engine cannot honour raises ``Unsupported``; nothing is dropped in silence.
* Characters are whole, stop strings never leak, markers of tools and reasoning never appear as text.
* One request's failure is its own. A dead process raises ``EngineCrashed`` in every open request and sets ``exited``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum

from msgspec import Struct

from localllm.core.generation import Event, GenerationRequest, Prompt
from localllm.core.launch import LaunchPlan


class Capability(StrEnum):
    CHAT = "chat"
    COMPLETION = "completion"
    EMBEDDING = "embedding"
    TOOLS = "tools"
    REASONING = "reasoning"
    VISION = "vision"
    GRAMMAR = "grammar"
    JSON_SCHEMA = "json_schema"
    LOGPROBS = "logprobs"
    LOGIT_BIAS = "logit_bias"
    SEED = "seed"
    PREDICTION = "prediction"
    MULTIPLE_CHOICES = "n"
    TOKENIZE = "tokenize"
    PRIORITY = "priority"
    STOP_SEQUENCE = "stop_sequence"  # says which stop string ended an answer
    CONTINUE = "continue"  # goes on with the last message


class EngineStatus(Struct, frozen=True, kw_only=True):
    """Whether an engine can run here: ``reason`` says why not (or where it was found), ``hint`` what to do."""

    name: str
    available: bool
    version: str | None = None
    reason: str | None = None
    hint: str | None = None


class LoadProgress(Struct, frozen=True):
    """``fraction`` 0…1 of the weights, or None while unknown; ``stage`` one word for a person."""

    stage: str
    fraction: float | None = None


class BufferReport(Struct, frozen=True):
    """One buffer the engine said it allocated: ``kind`` is weights, kv, compute, output or other; bytes as logged."""

    kind: str
    device: str
    bytes: int


class InstanceInfo(Struct, frozen=True, kw_only=True):
    """What was really loaded. ``context_length`` is what one sequence gets. ``buffers`` is the engine's own account."""

    engine: str
    engine_version: str | None
    context_length: int
    parallel: int
    capabilities: frozenset[Capability]
    pid: int | None = None
    buffers: tuple[BufferReport, ...] = ()
    gpu_layers: int | None = None
    total_layers: int | None = None
    template_source: str | None = None
    warnings: tuple[str, ...] = ()


class InstanceStats(Struct, frozen=True, kw_only=True):
    """A reading of a loaded model; None = the engine cannot tell. Counters only ever grow.

    A decoded row is one position whose logits were computed (a token, or a draft that was checked); of a step's wall
    time ``model_seconds_total`` was spent in the model and ``sampling_seconds_total`` on choosing tokens.
    """

    running: int = 0
    waiting: int = 0
    kv_used_tokens: int | None = None
    kv_total_tokens: int | None = None
    prompt_tokens_total: int | None = None
    cached_tokens_total: int | None = None
    completion_tokens_total: int | None = None
    resident_bytes: int | None = None
    waiting_by_tier: dict[str, int] = {}
    prefilled_tokens_total: int | None = None
    decoded_rows_total: int | None = None
    preemptions_total: int | None = None
    steps_total: int | None = None
    step_seconds_total: float | None = None
    model_seconds_total: float | None = None
    sampling_seconds_total: float | None = None


class EmbeddingResult(Struct, frozen=True):
    """``vectors[i]`` belongs to input i; float32 values, unit length when the model's pooling gives one vector."""

    vectors: tuple[tuple[float, ...], ...]
    prompt_tokens: int


class Exit(Struct, frozen=True, kw_only=True):
    """Why an engine's process ended: ``cause`` is one sentence, ``expected`` whether we asked for it."""

    expected: bool
    exit_code: int | None
    cause: str
    stderr_tail: str = ""


class Instance(ABC):
    """One loaded model."""

    info: InstanceInfo

    def __init__(self) -> None:
        self.exited: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    @abstractmethod
    def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Stream the events of one generation; see the module's rules."""

    @abstractmethod
    async def embed(self, inputs: Sequence[str | Sequence[int]]) -> EmbeddingResult:
        """Embed texts or token lists. Raises ``ContextLengthExceeded`` or ``Unsupported``."""

    @abstractmethod
    async def count_tokens(self, prompt: Prompt) -> int:
        """Tokens this prompt would take, template and special tokens included."""

    @abstractmethod
    async def tokenize(self, text: str, *, add_special: bool = False) -> list[int]: ...

    @abstractmethod
    async def detokenize(self, tokens: Sequence[int]) -> str: ...

    @abstractmethod
    async def stats(self) -> InstanceStats: ...

    @abstractmethod
    async def ping(self) -> None:
        """Return when the engine answers. Raises ``EngineCrashed`` or ``EngineStalled``; bounded by 5 s."""

    @abstractmethod
    async def unload(self) -> None:
        """Stop and free everything; open generations are ended with ``Cancelled``. Safe to call twice."""


class Engine(ABC):
    name: str

    @abstractmethod
    async def status(self) -> EngineStatus:
        """Whether this engine can run here; never raises, answers within 3 s."""

    @abstractmethod
    async def load(self, plan: LaunchPlan, on_progress: Callable[[LoadProgress], None]) -> Instance:
        """Load a model. Cancelling the call kills what was started.

        Raises:
            EngineUnavailable: the engine is not here.
            LoadFailed: with the cause (OutOfMemory, UnknownArchitecture, …) and the end of the engine's log.
        """

    async def close(self) -> None:
        """Release what the engine holds beside its instances."""
        return
