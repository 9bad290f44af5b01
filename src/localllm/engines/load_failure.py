"""Why llama.cpp could not load a model, from how its process ended and what it logged last.

llama.cpp has no error codes for this: its log is the only account there is. The markers are its own wording
(``llama-model.cpp``, ``ggml-backend``, the CUDA and Metal backends).
"""

from __future__ import annotations

import re

from localllm.core.errors import LoadFailed, OutOfMemory, UnknownArchitecture
from localllm.engines.base import Exit

_ARCHITECTURE = re.compile(r"unknown model architecture: '([^']{0,64})'")
_NO_MEMORY = re.compile(
    r"failed to allocate|unable to allocate|out of memory|cudaMalloc failed|ErrorOutOfDeviceMemory|bad_alloc"
    r"|insufficient memory|cannot allocate memory",
    re.IGNORECASE,
)
_ERROR_LINE = re.compile(r"^[\d.]+ E |GGML_ASSERT|\berror: ")
_STAMP = re.compile(r"^[\d.]+ [EWI] (?:\w+ +)?(?=\w+: )|^[\d.]+ [EWI] ")


def load_failure(end: Exit) -> LoadFailed:
    """The error to raise when a child ended instead of loading; ``details`` carry cause, exit_code, stderr_tail."""
    tail = end.stderr_tail
    details: dict[str, object] = {"cause": end.cause, "exit_code": end.exit_code, "stderr_tail": tail}
    unknown = _ARCHITECTURE.search(tail)
    if unknown is not None:
        return UnknownArchitecture(
            f"The engine does not know the model architecture {unknown[1]!r}.",
            hint="A newer engine may know it; another engine may too: localllm doctor lists them.",
            details=details,
        )
    if _NO_MEMORY.search(tail) is not None or "memory ran out" in end.cause:
        return OutOfMemory(
            "The model did not fit in memory after all.",
            hint="Load it with a shorter context, fewer parallel requests or a smaller quantisation.",
            details=details,
        )
    said = _first_error(tail)
    message = f"The engine could not load the model. {end.cause}"
    return LoadFailed(f"{message} It said: {said}." if said else message, details=details)


def _first_error(tail: str) -> str | None:
    """The first error is the cause; those after it only say that their callers failed too."""
    for line in tail.splitlines():
        if _ERROR_LINE.search(line):
            return _STAMP.sub("", line).strip().rstrip(".")[:300]
    return None
