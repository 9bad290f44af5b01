"""Arguments and options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from localllm.core.errors import LocalLLMError
from localllm.core.launch import KV_CACHE_TYPES

PROFILES = ("chat", "code", "agent", "long-document", "batch")
TARGETS = ("llama-server", "vllm", "sglang", "ollama")
"""The values of ``core.plan.Profile`` and ``core.export.Target``, which take too long to import for a ``--help``."""


def complete_model(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names in the local store that begin with what was typed: read from disk, so that a Tab starts no service."""
    from localllm.cli.local_store import local_store

    try:
        names = [model.name for model in local_store().list()]
    except (LocalLLMError, OSError):
        return []
    return [CompletionItem(name) for name in names if name.lower().startswith(incomplete.lower())]


def _checked_name(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """Refuse what can be neither a name nor a GGUF file before a service is started for it. Raises BadName."""
    if value is not None and not value.endswith(".gguf"):
        from localllm.hub.names import parse_name

        parse_name(value)
    return value


model_argument = click.argument("model", shell_complete=complete_model, callback=_checked_name)

optional_model_argument = click.argument(
    "model", required=False, shell_complete=complete_model, callback=_checked_name
)


def context_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--context``, ``--kv-type`` and ``--parallel``: the figures that decide how much memory a model takes."""
    function = click.option(
        "--parallel", type=click.IntRange(min=1), metavar="N", help="Requests answered at once."
    )(function)
    function = click.option(
        "--kv-type",
        type=click.Choice(KV_CACHE_TYPES),
        metavar="TYPE",
        help="Type of the KV cache: f16, q8_0, q4_0 …",
    )(function)
    return click.option(
        "--context",
        "context_length",
        type=TokenCount(),
        metavar="TOKENS",
        help="Context of one request in tokens: 8192 or 8k.",
    )(function)


class TokenCount(click.ParamType[int]):
    """A number of tokens; ``8k`` is 8,192."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().lower()
        factor = 1024 if text.endswith("k") else 1
        number = text.removesuffix("k")
        if not number.isdecimal() or int(number) < 1:
            self.fail(f"{value!r} is not a number of tokens; write 8192 or 8k.", param, ctx)
        return int(number) * factor


class ByteCount(click.ParamType[int]):
    """An amount of memory: ``8GiB``, ``512m``."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from localllm.core.units import parse_bytes

        try:
            return value if isinstance(value, int) else parse_bytes(str(value))
        except ValueError:
            self.fail(f"{value!r} is not an amount of memory; write 8GiB or 512MiB.", param, ctx)


def profile_option(
    name: str = "--profile", help: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--profile``: what a model is for, which decides how much context and how many requests at once."""
    return click.option(
        name,
        "profile",
        type=click.Choice(PROFILES),
        help=help
        or "What for; decides how long a context and how many requests at once are worth their memory.",
    )


simulate_option = click.option(
    "--simulate", metavar="GPU", help="Plan for another machine: 'RTX 4090', '2x RTX 3090', 'M3 Max'."
)

as_option = click.option(
    "--as",
    "target",
    type=click.Choice(TARGETS),
    help="Print the plan for another program: its command line, or an Ollama Modelfile.",
)
