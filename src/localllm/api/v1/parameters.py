"""The parameters that chat and plain completions share → sampling, limits, stop strings and tier.

Each rule here needs more than one field's range (``core.openai``): names that are aliases, values that mean "none",
combinations that no engine can honour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from localllm.core.errors import BadRequest, Unsupported
from localllm.core.generation import Constraint, Grammar, Sampling, Tier
from localllm.core.openai import GenerationFields, SamplingFields, ServiceTier, TokenLimit

MAX_STOP_STRINGS = 4
# Fill-in-the-middle clients send one stop string per special token of every model family they know.
MAX_STOP_STRINGS_COMPLETION = 32
MAX_STOP_LENGTH = 1024

_SECONDS: Mapping[str, float] = {"s": 1, "m": 60, "h": 3600}
_NOT_SAMPLING = frozenset({"seed", "logit_bias", "top_k"})
_SAMPLING_NAMES = tuple(name for name in SamplingFields.__struct_fields__ if name not in _NOT_SAMPLING)


def sampling_of(fields: SamplingFields) -> Sampling:
    """Raises BadRequest for a logit_bias key that is no token id."""
    values = {name: getattr(fields, name) for name in _SAMPLING_NAMES}
    return Sampling(
        **values,
        top_k=None
        if fields.top_k is None
        else max(0, fields.top_k),  # -1 and 0 both mean the whole vocabulary
        seed=_seed(fields.seed),
        logit_bias=_logit_bias(fields.logit_bias or {}),
    )


def max_tokens_of(*limits: tuple[str, TokenLimit | None]) -> int | None:
    """The first limit that is set, or None for as many as the context leaves (as -1 asks for).

    Raises:
        BadRequest: a limit of 0, which would be an answer of nothing.
    """
    for name, value in limits:
        if value is None:
            continue
        if value == 0:
            raise BadRequest(
                f"{name} must be at least 1 (or -1 for all that the context leaves).", param=name
            )
        return None if value < 0 else value
    return None


def stop_of(stop: str | list[str] | None, most: int = MAX_STOP_STRINGS) -> tuple[str, ...]:
    """Stop strings without repeats. Raises BadRequest for an empty one, or for more than ``most``."""
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > most:
        raise BadRequest(f"At most {most} stop strings can be given.", param="stop")
    if any(not 0 < len(text) <= MAX_STOP_LENGTH for text in strings):
        raise BadRequest(f"A stop string must have 1 to {MAX_STOP_LENGTH} characters.", param="stop")
    return tuple(dict.fromkeys(strings))


def tier_of(asked: ServiceTier | None) -> Tier:
    """Ours to choose (``auto``) means the default tier; OpenAI's ``scale`` and ``fast`` are its default and priority."""
    match asked:
        case None | "auto" | "default" | "scale":
            return Tier.DEFAULT
        case "priority" | "fast":
            return Tier.PRIORITY
        case "flex":
            return Tier.FLEX


def only_one_constraint(chosen: Constraint | None, grammar: str | None) -> Constraint | None:
    """A response format or a grammar of the client's own, not both."""
    if grammar is None:
        return chosen
    if chosen is not None:
        raise BadRequest("response_format and grammar cannot be combined.", param="grammar")
    return Grammar(gbnf=grammar)


def require_stream_for_options(fields: GenerationFields) -> None:
    if fields.stream_options is not None and not fields.stream:
        raise BadRequest("stream_options is only allowed when stream is true.", param="stream_options")


def ignored_fields(body: Mapping[str, object], known: Iterable[str], *, strict: bool) -> tuple[str, ...]:
    """Names of the fields in ``body`` that nobody here knows, for ``x-localllm-ignored``.

    Raises:
        Unsupported: there are some, and the configuration is strict.
    """
    unknown = tuple(name for name in body if name not in set(known))
    if unknown and strict:
        raise Unsupported(
            f"Unknown parameter: {unknown[0][:64]!r}.",
            hint="Set server.strict to false to have unknown parameters ignored.",
            param=unknown[0][:64],
        )
    return unknown


def keep_alive_seconds(value: float | str | None) -> float | None:
    """Ollama's spelling too: seconds as a number, or "30s", "5m", "1h"; negative = for ever."""
    if value is None or not isinstance(value, str):
        return value
    number, unit = value[:-1], value[-1:]
    try:
        return float(number) * _SECONDS[unit] if unit in _SECONDS else float(value)
    except ValueError as error:
        raise BadRequest("keep_alive must be seconds, or a time such as '5m'.", param="keep_alive") from error


def _seed(seed: int | None) -> int | None:
    """llama.cpp's seeds have 32 bits, and its highest one means "draw one", as -1 does for clients."""
    if seed is None or seed == -1:
        return None
    return (seed & 0xFFFF_FFFF) % 0xFFFF_FFFF


def _logit_bias(bias: Mapping[str, float]) -> dict[int, float]:
    tokens: dict[int, float] = {}
    for name, value in bias.items():
        if not (name.isascii() and name.isdigit() and int(name) < 1 << 31):
            raise BadRequest(f"logit_bias key {name[:32]!r} is not a token id.", param="logit_bias")
        tokens[int(name)] = value
    return tokens
