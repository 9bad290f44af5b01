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
                              NotFound, Conflict, ShuttingDown
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
    code = "config_error"


class ConfigInvalid(ConfigError):
    """A configuration file or value that cannot be used; the message names file, line and key."""

    code = "config_invalid"


class ConfigUnknownKey(ConfigError):
    code = "config_unknown_key"


class HardwareError(LocalLLMError):
    code = "hardware_error"


class ProbeFailed(HardwareError):
    code = "probe_failed"


class HubError(LocalLLMError):
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
    code = "model_ambiguous"


class ModelInUse(HubError):
    code = "model_in_use"


class Gated(HubError):
    code = "gated"


class Offline(HubError):
    code = "offline"


class DiskFull(HubError):
    code = "disk_full"


class ChecksumMismatch(HubError):
    code = "checksum_mismatch"


class BadName(HubError):
    code = "bad_name"


class StoreCorrupt(HubError):
    code = "store_corrupt"


class DownloadFailed(HubError):
    code = "download_failed"


class GGUFError(LocalLLMError):
    """The file is not a GGUF model we can read; the message says what it is instead, or what is wrong with it."""

    code = "bad_gguf"


class PlanError(LocalLLMError):
    code = "plan_error"


class DoesNotFit(PlanError):
    """The model cannot fit; ``details`` carry needed_bytes, available_bytes and ``ways_out`` (measured sentences)."""

    code = "does_not_fit"


class EngineError(LocalLLMError):
    code = "engine_error"


class EngineUnavailable(EngineError):
    """The engine is not installed or not reachable; the hint says how to get it."""

    code = "engine_unavailable"


class LoadFailed(EngineError):
    code = "load_failed"


class OutOfMemory(LoadFailed):
    code = "out_of_memory"


class UnknownArchitecture(LoadFailed):
    code = "unknown_architecture"


class Quarantined(LoadFailed):
    """Two crashes while loading this file: not tried again until forced."""

    code = "quarantined"


class ModelChanged(EngineError):
    code = "model_changed"


class ContextLengthExceeded(EngineError):
    """The prompt (plus what must be answered) is longer than the context one sequence really has."""

    code = "context_length_exceeded"

    def __init__(self, prompt_tokens: int, context_length: int, *, param: str = "messages") -> None:
        super().__init__(
            f"This model's context length is {context_length} tokens, but the prompt has {prompt_tokens}.",
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
    code = "invalid_grammar"


class BadTemplate(BadRequest):
    code = "template_error"


class Unsupported(BadRequest):
    """The engine or model cannot honour this field, and it is not dropped in silence."""

    code = "unsupported_parameter"


class GenerationFailed(EngineError):
    code = "generation_failed"


class EngineCrashed(EngineError):
    """The engine's process died; ``details`` carry cause, exit_code and the end of its stderr."""

    code = "engine_crashed"


class EngineStalled(EngineError):
    code = "engine_stalled"


class Cancelled(EngineError):
    code = "cancelled"


class LimitError(LocalLLMError):
    """Come back later; ``retry_after_s`` says when (seconds, None = never by itself)."""

    code = "limit"

    def __init__(self, message: str, *, retry_after_s: float | None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class QueueFull(LimitError):
    code = "queue_full"


class RateLimited(LimitError):
    code = "rate_limit_exceeded"


class QuotaExceeded(LimitError):
    code = "insufficient_quota"


class ServiceError(LocalLLMError):
    code = "service_error"


class AlreadyRunning(ServiceError):
    code = "already_running"


class NotRunning(ServiceError):
    code = "not_running"


class PortInUse(ServiceError):
    code = "port_in_use"


class VersionMismatch(ServiceError):
    code = "version_mismatch"


class Unauthorized(ServiceError):
    code = "invalid_api_key"


class Forbidden(ServiceError):
    code = "forbidden"


class NotFound(ServiceError):
    code = "not_found"


class Conflict(ServiceError):
    code = "conflict"


class ShuttingDown(ServiceError):
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
        error.prompt_tokens = _int(figures.get("prompt_tokens"))
        error.context_length = _int(figures.get("context_length"))
    elif isinstance(error, ModelNotFound):
        near = figures.get("near")
        error.name = ""
        error.near = tuple(str(n) for n in near) if isinstance(near, list) else ()
    return error


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
