"""What a remote model can do: as its user says, else as the server tells, else what OpenAI's API has."""

from __future__ import annotations

from msgspec import UNSET, Struct

from localllm.core.errors import LocalLLMError, ModelNotFound
from localllm.engines.base import Capability
from localllm.engines.remote.connection import Connection
from localllm.engines.remote.wire import ModelEntry, ModelList, Props

ASSUMED_CONTEXT_LENGTH = 128_000
OPENAI = frozenset(
    {
        Capability.CHAT,
        Capability.COMPLETION,
        Capability.TOOLS,
        Capability.JSON_SCHEMA,
        Capability.LOGPROBS,
        Capability.LOGIT_BIAS,
        Capability.SEED,
        Capability.MULTIPLE_CHOICES,
    }
)
_LLAMA_SAMPLING = frozenset(
    {
        *("top_k", "min_p", "typical_p", "top_n_sigma", "repeat_penalty", "repeat_last_n"),
        *("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n"),
        *("xtc_probability", "xtc_threshold", "mirostat", "mirostat_tau", "mirostat_eta"),
    }
)
_VLLM_SAMPLING = frozenset({"top_k", "min_p", "repeat_penalty"})
_SAMPLING = {
    "llamacpp": _LLAMA_SAMPLING,
    "localllm": _LLAMA_SAMPLING,
    "vllm": _VLLM_SAMPLING,
    "sglang": _VLLM_SAMPLING,
}


class Abilities(Struct, frozen=True, kw_only=True):
    """``sampling``: fields beyond OpenAI's that are understood; ``tools``: the model's template knows them."""

    server: str
    context_length: int
    capabilities: frozenset[Capability]
    sampling: frozenset[str] = frozenset()
    tools: bool = True
    warnings: tuple[str, ...] = ()


async def probe(connection: Connection, model: str) -> Abilities:
    """Ask the remote what it is.

    Raises:
        ModelNotFound: it lists its models, and this is none of them.
        EngineUnavailable: it does not answer, or refuses the key.
    """
    entry = await _entry(connection, model)
    server = _server(entry)
    target = connection.target
    length = target.context_length or _context_length(entry)
    tools = True
    if server == "llamacpp":
        length, tools = await _asked_of_llama_cpp(connection, length)
    warnings = []
    if length is None:
        length = ASSUMED_CONTEXT_LENGTH
        warnings.append(
            f"The remote {target.name!r} does not say the context length of {model!r}; {length} is assumed. "
            f"Set remotes.{target.name}.context_length."
        )
    return Abilities(
        server=server,
        context_length=length,
        capabilities=_capabilities(target.capabilities, entry, server),
        sampling=_SAMPLING.get(server, frozenset()),
        tools=tools,
        warnings=tuple(warnings),
    )


async def _entry(connection: Connection, model: str) -> ModelEntry:
    listed = (await connection.get("/models", ModelList)).data
    for entry in listed:
        if entry.id == model:
            return entry
    if listed and connection.target.models.get(model) is None:
        near = [entry.id for entry in listed][:5]
        raise ModelNotFound(f"{connection.target.name}/{model}", near=near, hint=f"It has: {', '.join(near)}")
    return ModelEntry(id=model)


async def _asked_of_llama_cpp(connection: Connection, length: int | None) -> tuple[int | None, bool]:
    """What one request gets is in ``/props``, which lies beside ``/v1``; a proxy may hide it."""
    base = connection.target.base_url.rstrip("/").removesuffix("/v1")
    try:
        props = await connection.get(f"{base}/props", Props)
    except LocalLLMError:
        return length, False
    caps = props.chat_template_caps
    return props.default_generation_settings.n_ctx or length, caps is not UNSET and caps.supports_tools


def _server(entry: ModelEntry) -> str:
    if entry.loaded is not None:
        return "localllm"
    owner = (entry.owned_by or "").lower()
    return owner if owner in _SAMPLING else "openai"


def _context_length(entry: ModelEntry) -> int | None:
    meta = entry.meta
    told = entry.context_length or entry.max_model_len or (meta.n_ctx if meta else None)
    return told or entry.max_context_length


def _capabilities(told: tuple[str, ...] | None, entry: ModelEntry, server: str) -> frozenset[Capability]:
    known = {capability.value for capability in Capability}
    if told is not None:
        return frozenset(Capability(name) for name in told if name in known)
    listed = entry.capabilities if isinstance(entry.capabilities, list) else []
    named = frozenset(Capability(name) for name in listed if name in known)
    if server == "localllm" and named:
        # counting and priorities are not part of the API that we speak to it
        return named & (OPENAI | {Capability.VISION, Capability.EMBEDDING, Capability.PREDICTION})
    # llama.cpp's own server counts one choice's tokens only, and takes no more choices than it has slots
    given = OPENAI - {Capability.MULTIPLE_CHOICES} if server == "llamacpp" else OPENAI
    return (
        given
        | (named & {Capability.VISION})
        | ({Capability.VISION} if "multimodal" in listed else frozenset())
    )
