"""The error tree: every failure a person or a client can meet, in one place.

Each class has a stable ``code`` (never reused, never renamed), a message for a person and, where something
can be done about it, a ``hint`` that says what. HTTP status lives in ``api/errors.py`` and the exit code in
``cli/diagnostics.py``; nothing here knows about either, and nobody tells errors apart by their text.

LocalLLMError
├── ConfigError            ── ConfigInvalid, ConfigUnknownKey
├── HardwareError          ── ProbeFailed
├── HubError               ── ModelNotFound, ModelAmbiguous, ModelInUse, Gated, Offline, DiskFull, ChecksumMismatch,
│                             BadName, StoreCorrupt, DownloadFailed
├── GGUFError              ── a file that is not a model we can read
├── PlanError              ── DoesNotFit
├── EngineError            ── EngineUnavailable, LoadFailed (OutOfMemory, UnknownArchitecture), Quarantined,
│                             ModelChanged, ContextLengthExceeded, BadRequest (BadGrammar, BadTemplate,
│                             Unsupported), GenerationFailed, EngineCrashed, EngineStalled, Cancelled
├── LimitError             ── QueueFull, RateLimited, QuotaExceeded
└── ServiceError           ── AlreadyRunning, NotRunning, PortInUse, VersionMismatch, Unauthorized, Forbidden,
                              NotFound, Conflict, ShuttingDown, PolicyFailed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class LocalLLMError(Exception):
    """Any failure that localllm can name.

    ``message`` is one sentence for a person, ``hint`` what to do about it (or None), ``param`` the request field
    at fault (or None), ``details`` figures a program may want (JSON-ready).
    """

    code: ClassVar[str] = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        param: str | None = None,
        details: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.param = param
        self.details: dict[str, object] = details or {}

    def __str__(self) -> str:
        return self.message


class ConfigError(LocalLLMError):
    """A setting or its file is at fault."""

    code = "config_error"


class ConfigInvalid(ConfigError):
    """A configuration file or value that cannot be used; the message names file, line and key."""

    code = "config_invalid"


class ConfigUnknownKey(ConfigError):
    """A setting nobody knows; the hint names the nearest one."""

    code = "config_unknown_key"


class HardwareError(LocalLLMError):
    """The machine could not be looked at, or a device is not known."""

    code = "hardware_error"


class ProbeFailed(HardwareError):
    """One source of hardware figures did not answer."""

    code = "probe_failed"


class HubError(LocalLLMError):
    """A model's source or the store failed."""

    code = "hub_error"


class ModelNotFound(HubError):
    """No model of that name here or at the source; ``near`` are names close to it."""

    code = "model_not_found"

    def __init__(self, name: str, *, near: Sequence[str] = (), hint: str | None = None) -> None:
        asked = f"The model {name!r} does not exist here."
        if hint is None:
            hint = f"Did you mean {', '.join(near)}?" if near else "See what there is with: localllm list"
        super().__init__(asked, hint=hint, param="model", details={"near": list(near)})
        self.name = name
        self.near = tuple(near)


class ModelAmbiguous(HubError):
    """Several models answer to that name; the hint lists them."""

    code = "model_ambiguous"


class ModelInUse(HubError):
    """The model is loaded, so its file cannot go."""

    code = "model_in_use"


class Gated(HubError):
    """The source wants a licence accepted or a token."""

    code = "gated"


class Offline(HubError):
    """The source cannot be reached, or must not be."""

    code = "offline"


class DiskFull(HubError):
    """The disk has not enough room; ``details`` carry needed_bytes and free_bytes."""

    code = "disk_full"


class ChecksumMismatch(HubError):
    """A file is not what it should be: its SHA-256 differs."""

    code = "checksum_mismatch"


class BadName(HubError):
    """Not a model name; the hint says what one looks like."""

    code = "bad_name"


class StoreCorrupt(HubError):
    """Something in the store cannot be read; the message names the file."""

    code = "store_corrupt"


class DownloadFailed(HubError):
    """A download ended before it was complete; it can be resumed."""

    code = "download_failed"


class GGUFError(LocalLLMError):
    """The file is not a GGUF model we can read; the message says what it is instead, or what is wrong with it."""

    code = "bad_gguf"


class PlanError(LocalLLMError):
    """The planner cannot say how to load the model."""

    code = "plan_error"


class DoesNotFit(PlanError):
    """The model cannot fit; ``details`` carry needed_bytes, available_bytes and ``ways_out`` (measured sentences)."""

    code = "does_not_fit"


class EngineError(LocalLLMError):
    """The engine failed."""

    code = "engine_error"


class EngineUnavailable(EngineError):
    """The engine is not installed or not reachable; the hint says how to get it."""

    code = "engine_unavailable"


class LoadFailed(EngineError):
    """The engine could not load the model; the message has its reason."""

    code = "load_failed"


class OutOfMemory(LoadFailed):
    """The engine ran out of memory while loading."""

    code = "out_of_memory"


class UnknownArchitecture(LoadFailed):
    """The engine does not know this kind of model."""

    code = "unknown_architecture"


class Quarantined(LoadFailed):
    """Two crashes while loading this file: not tried again until forced."""

    code = "quarantined"


class ModelChanged(EngineError):
    """The model's file changed while it was loaded."""

    code = "model_changed"


class ContextLengthExceeded(EngineError):
    """The prompt (plus what must be answered) is longer than the context one sequence really has.

    ``prompt_tokens`` None: the engine (Ollama) refused without counting.
    """

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int | None, context_length: int, *, param: str = "messages") -> None:
        has = "is longer" if prompt_tokens is None else f"has {prompt_tokens}"
        super().__init__(
            f"This model's context length is {context_length} tokens, but the prompt {has}.",
            hint="Shorten the prompt, or load the model with a longer context.",
            param=param,
            details={"prompt_tokens": prompt_tokens, "context_length": context_length},
        )
        self.prompt_tokens = prompt_tokens
        self.context_length = context_length


class BadRequest(EngineError):
    """The request itself is at fault; ``param`` names the field."""

    code = "invalid_value"


class BadGrammar(BadRequest):
    """The grammar or schema that the answer must follow is not valid."""

    code = "invalid_grammar"


class BadTemplate(BadRequest):
    """The model's chat template refuses these messages."""

    code = "template_error"


class Unsupported(BadRequest):
    """The engine or model cannot honour this field, and it is not dropped in silence."""

    code = "unsupported_parameter"


class GenerationFailed(EngineError):
    """The engine gave up in the middle of an answer."""

    code = "generation_failed"


class EngineCrashed(EngineError):
    """The engine's process died; ``details`` carry cause, exit_code and the end of its stderr."""

    code = "engine_crashed"


class EngineStalled(EngineError):
    """The engine gave no token for too long and was ended."""

    code = "engine_stalled"


class Cancelled(EngineError):
    """Somebody ended it, or the service is stopping."""

    code = "cancelled"


class LimitError(LocalLLMError):
    """Come back later; ``retry_after_s`` says when (seconds, None = never by itself)."""

    code = "limit"

    def __init__(self, message: str, *, retry_after_s: float | None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class QueueFull(LimitError):
    """Too many requests wait for this model already."""

    code = "queue_full"


class RateLimited(LimitError):
    """This key asks more often than it may."""

    code = "rate_limit_exceeded"


class QuotaExceeded(LimitError):
    """This key has used up what it was given."""

    code = "insufficient_quota"


class ServiceError(LocalLLMError):
    """The service could not do it."""

    code = "service_error"


class AlreadyRunning(ServiceError):
    """Another service of this user runs; the message says where."""

    code = "already_running"


class NotRunning(ServiceError):
    """No service answers."""

    code = "not_running"


class PortInUse(ServiceError):
    """Another program listens on the port; the message says which, where that can be known."""

    code = "port_in_use"


class VersionMismatch(ServiceError):
    """Service and client are of different versions."""

    code = "version_mismatch"


class Unauthorized(ServiceError):
    """No key was sent, or a wrong one."""

    code = "invalid_api_key"


class Forbidden(ServiceError):
    """The key is right, but not for this; or the Host or Origin is not allowed."""

    code = "forbidden"


class NotFound(ServiceError):
    """There is nothing of that name or at that path."""

    code = "not_found"


class Conflict(ServiceError):
    """It contradicts what is there already, such as a name that is taken."""

    code = "conflict"


class PolicyFailed(ServiceError):
    """A policy of the gateway could not do its work, so the request was not let past it; the log names the policy."""

    code = "policy_failed"


class ShuttingDown(ServiceError):
    """The service is stopping and takes nothing new."""

    code = "shutting_down"


def all_errors() -> dict[str, type[LocalLLMError]]:
    """Every error class by its code: for the client (to raise what the service sent) and the reference docs."""
    found: dict[str, type[LocalLLMError]] = {}
    pending: list[type[LocalLLMError]] = [LocalLLMError]
    while pending:
        cls = pending.pop()
        found[cls.code] = cls
        pending.extend(cls.__subclasses__())
    return found


def from_code(
    code: str,
    message: str,
    *,
    hint: str | None = None,
    param: str | None = None,
    details: dict[str, object] | None = None,
) -> LocalLLMError:
    """Rebuild an error that crossed a process boundary, as the class that its code names.

    Constructors with their own signature are bypassed: the message was already worded on the other side.
    """
    cls = all_errors().get(code, LocalLLMError)
    error = cls.__new__(cls)
    LocalLLMError.__init__(error, message, hint=hint, param=param, details=details)
    figures = error.details
    if isinstance(error, LimitError):
        retry = figures.get("retry_after_s")
        error.retry_after_s = float(retry) if isinstance(retry, int | float) else None
    elif isinstance(error, ContextLengthExceeded):
        counted = figures.get("prompt_tokens")
        error.prompt_tokens = counted if isinstance(counted, int) else None
        error.context_length = _int(figures.get("context_length"))
    elif isinstance(error, ModelNotFound):
        near = figures.get("near")
        error.name = ""
        error.near = tuple(str(n) for n in near) if isinstance(near, list) else ()
    return error


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
