"""The page of errors: every code with its HTTP status, its exit code and what it means."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from generators.markdown import HEAD, cell
from localllm.api.errors import STATUS
from localllm.cli.diagnostics import exit_code
from localllm.core import errors
from localllm.core.errors import LocalLLMError

WITH_ERRORS = ("localllm.api.errors", "localllm.api.v1.guard", "localllm.tui.main")
"""Modules that add errors of their own to the tree; a test finds any that is missing here."""


def page() -> Iterator[str]:
    yield HEAD
    yield "# Errors\n"
    yield "Every failure has a stable code, a message and, where something can be done, a hint. The port answers"
    yield '`{"error": {"message", "type", "param", "code"}}` with the HTTP status below; the command line prints message and'
    yield "hint to stderr and exits with the code in the last column.\n"
    yield "| code | HTTP | exit | meaning |\n|---|---|---|---|"
    for module in WITH_ERRORS:
        import_module(module)
    for code, cls in sorted(errors.all_errors().items()):
        yield f"| `{code}` | {_status(cls)} | {_exit(cls)} | {cell(_meaning(cls))} |"


def _status(cls: type[LocalLLMError]) -> int:
    return next(STATUS[ancestor] for ancestor in cls.__mro__ if ancestor in STATUS)


def _exit(cls: type[LocalLLMError]) -> int:
    error = cls.__new__(cls)
    return exit_code(error)


def _meaning(cls: type[LocalLLMError]) -> str:
    own = cls.__dict__.get("__doc__")
    if not own:
        raise SystemExit(f"{cls.__module__}.{cls.__name__} ({cls.code}) has no docstring to document it with")
    return " ".join(own.split())
