"""A model's figures, as the planner needs them: read from a GGUF header, checked, in one frozen struct.

Nothing is guessed when the header says it (a head size is never derived while ``key_length`` is given); what it does
not say comes from ``families``. Every number is checked for a sane range here, so the formulas may trust it.
"""

from __future__ import annotations

import math
from typing import Final

from msgspec import Struct

from localllm.core import families
from localllm.core.errors import GGUFError
from localllm.core.gguf import GGUFHeader, Skipped, TensorInfo, Value
from localllm.core.quant import FILE_TYPES, dominant_type

MAX_LAYERS: Final = 1_024
MAX_WIDTH: Final = 1 << 20
MAX_CONTEXT: Final = 1 << 30
MAX_VOCABULARY: Final = 16 << 20
MAX_EXPERTS: Final = 4_096


class ModelFacts(Struct, frozen=True, kw_only=True):
    """Lengths in elements, sizes in bytes; per-layer tuples have ``n_layer`` entries.

    ``own_cache``: the layer has a key-value cache of its own (not recurrent, not sharing an earlier layer's).
    ``latent_attention``: the cache holds one compressed row per token instead of keys and values (MLA).
    ``state_elements``: F32 elements of one recurrent layer's state per sequence: (convolution, recurrence).
    ``attention_width``: elements of one token's attention result, all heads (the input of the output projection).
    ``per_layer_inputs``: elements of one token's extra inputs, all layers together (Gemma's per-layer embeddings).
    ``recurrent_width``: inner width of a recurrent layer. ``indexer_dim``: extra key row per token and layer of a sparse-attention indexer.
    ``gated``: the feed-forward multiplies two projections. ``n_ff`` is the widest dense feed-forward of a layer; ``n_ff_expert`` one expert's.
    """

    architecture: str
    name: str | None = None
    quant: str
    size_bytes: int
    parameters: int
    n_layer: int
    n_embd: int
    n_vocab: int
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    head_dim_k: int
    head_dim_v: int
    head_dim_k_sliding: int
    head_dim_v_sliding: int
    n_ff: int
    gated: bool = True
    n_ff_expert: int = 0
    n_ff_shared: int = 0
    n_expert: int = 0
    n_expert_used: int = 0
    sliding_window: int | None = None
    sliding_layers: tuple[bool, ...]
    own_cache: tuple[bool, ...]
    recurrent_layers: tuple[bool, ...]
    state_elements: tuple[int, int] = (0, 0)
    recurrent_width: int = 0
    per_layer_inputs: int = 0
    latent_attention: bool = False
    attention_width: int = 0
    indexer_dim: int = 0
    causal: bool = True
    pooling: int | None = None
    trained_context_length: int | None = None
    tied_embeddings: bool = False
    tensors: tuple[TensorInfo, ...] = ()
    chat_template: str | None = None
    licence: str | None = None
    capabilities: tuple[str, ...] = ()
    bos_token_id: int | None = None
    eos_token_id: int | None = None

    @property
    def total_layers(self) -> int:
        """Layers as llama.cpp counts them for offloading: the blocks plus the output."""
        return self.n_layer + 1

    @property
    def is_moe(self) -> bool:
        return self.n_expert > 0

    @property
    def expert_share(self) -> float:
        """The part of the experts' weights that one token reads."""
        return self.n_expert_used / self.n_expert if self.n_expert else 1.0


def facts_from_header(header: GGUFHeader) -> ModelFacts:
    """The figures of the language model in this file.

    Raises:
        GGUFError: it is no language model (vision projector, adapter, importance matrix), or a figure is missing
            or impossible.
    """
    architecture = _architecture(header)
    keys = _Keys(header.metadata, architecture)
    n_layer = keys.required("block_count", 1, MAX_LAYERS)
    n_embd = keys.required("embedding_length", 1, MAX_WIDTH)
    n_head = keys.per_layer("attention.head_count", n_layer, 0, 65_536) or (0,) * n_layer
    n_head_kv = keys.per_layer("attention.head_count_kv", n_layer, 0, 65_536) or n_head
    default_dim = n_embd // max(n_head) if max(n_head) else 0
    head_dim_k = keys.integer("attention.key_length", 0, 65_536, default_dim)
    head_dim_v = keys.integer("attention.value_length", 0, 65_536, default_dim)
    feed_forward = keys.per_layer("feed_forward_length", n_layer, 0, MAX_WIDTH) or (0,) * n_layer
    predictors = keys.integer("nextn_predict_layers", 0, n_layer, 0)
    recurrent = families.recurrent_layers(
        architecture, n_head_kv, feed_forward, keys.integer("full_attention_interval", 1, MAX_LAYERS, 4)
    )
    recurrent = (*recurrent[: n_layer - predictors], *(False,) * predictors)
    window, sliding = _sliding_window(keys, architecture, n_layer)
    names = {tensor.name for tensor in header.tensors}
    chat_template = keys.text("tokenizer.chat_template", absolute=True)
    latent = (
        architecture in families.LATENT_ATTENTION
        and keys.has("attention.key_length_mla")
        and keys.has("attention.kv_lora_rank")
    )
    return ModelFacts(
        architecture=architecture,
        name=keys.text("general.name", absolute=True),
        quant=_quant(keys, header),
        size_bytes=header.size_bytes,
        parameters=sum(math.prod(tensor.shape) for tensor in header.tensors),
        n_layer=n_layer,
        n_embd=n_embd,
        n_vocab=_vocabulary(keys, header),
        n_head=n_head,
        n_head_kv=n_head_kv,
        head_dim_k=head_dim_k,
        head_dim_v=head_dim_v,
        head_dim_k_sliding=keys.integer("attention.key_length_swa", 0, 65_536, head_dim_k),
        head_dim_v_sliding=keys.integer("attention.value_length_swa", 0, 65_536, head_dim_v),
        n_ff=max(feed_forward),
        gated=_is_gated(header, max(feed_forward)),
        n_ff_expert=_expert_width(keys, header),
        n_ff_shared=keys.integer("expert_shared_feed_forward_length", 0, MAX_WIDTH, 0),
        n_expert=keys.integer("expert_count", 0, MAX_EXPERTS, 0),
        n_expert_used=keys.integer("expert_used_count", 0, MAX_EXPERTS, 0),
        sliding_window=window,
        sliding_layers=sliding,
        own_cache=_own_cache(keys, architecture, recurrent, predictors),
        recurrent_layers=recurrent,
        state_elements=_state_elements(keys, n_embd),
        per_layer_inputs=n_layer * _per_layer_input(keys, architecture),
        recurrent_width=keys.integer("ssm.inner_size", 0, MAX_WIDTH, 0) or n_embd,
        latent_attention=latent,
        attention_width=_attention_width(header, max(n_head) * head_dim_v),
        indexer_dim=keys.integer("attention.indexer.key_length", 0, 65_536, 0),
        causal=architecture not in families.ENCODERS | families.DIFFUSION
        and keys.flag("attention.causal", True),
        pooling=keys.optional("pooling_type", 0, 16),
        trained_context_length=keys.optional("context_length", 1, MAX_CONTEXT),
        tied_embeddings="output.weight" not in names and "token_embd.weight" in names,
        tensors=header.tensors,
        chat_template=chat_template,
        licence=keys.text("general.license", absolute=True),
        capabilities=_capabilities(keys, architecture, chat_template),
        bos_token_id=keys.optional("tokenizer.ggml.bos_token_id", 0, MAX_VOCABULARY, absolute=True),
        eos_token_id=keys.optional("tokenizer.ggml.eos_token_id", 0, MAX_VOCABULARY, absolute=True),
    )


class _Keys:
    """Typed, range-checked access to the metadata; names are relative to the architecture unless ``absolute``."""

    def __init__(self, metadata: dict[str, Value], architecture: str) -> None:
        self._metadata = metadata
        self._prefix = architecture + "."

    def has(self, name: str) -> bool:
        return self._prefix + name in self._metadata

    def get(self, name: str, *, absolute: bool = False) -> Value | None:
        return self._metadata.get(name if absolute else self._prefix + name)

    def optional(self, name: str, low: int, high: int, *, absolute: bool = False) -> int | None:
        value = self.get(name, absolute=absolute)
        return None if value is None else _checked(name, value, low, high)

    def required(self, name: str, low: int, high: int) -> int:
        value = self.optional(name, low, high)
        if value is None:
            raise GGUFError(f"The header lacks {self._prefix}{name}, without which the model cannot be run.")
        return value

    def integer(self, name: str, low: int, high: int, default: int) -> int:
        value = self.optional(name, low, high)
        return default if value is None else value

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name)
        return value if isinstance(value, bool) else default

    def text(self, name: str, *, absolute: bool = False) -> str | None:
        value = self.get(name, absolute=absolute)
        return value if isinstance(value, str) else None

    def per_layer(self, name: str, n_layer: int, low: int, high: int) -> tuple[int, ...] | None:
        """One value for all layers or an array of one each; None when the header has neither."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, tuple):
            if len(value) < n_layer:
                raise GGUFError(f"{self._prefix}{name} has {len(value)} entries for {n_layer} layers.")
            return tuple(_checked(name, entry, low, high) for entry in value[:n_layer])
        return (_checked(name, value, low, high),) * n_layer


def _checked(name: str, value: Value, low: int, high: int) -> int:
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise GGUFError(f"{name} is {value!r:.40}, not a whole number.")
    if not low <= value <= high:
        raise GGUFError(f"{name} is {value}; between {low} and {high} is believable.")
    return value


def _architecture(header: GGUFHeader) -> str:
    kind = header.metadata.get("general.type")
    architecture = header.metadata.get("general.architecture")
    if kind == "adapter":
        raise GGUFError("The file is a LoRA adapter, not a model: load it together with its base model.")
    if kind == "imatrix" or architecture == "imatrix":
        raise GGUFError("The file is an importance matrix for quantising, not a model.")
    if architecture == "clip" or kind == "mmproj":
        raise GGUFError(
            "The file is a vision projector (mmproj), not a language model.",
            hint="Import the model itself; the projector is given beside it.",
        )
    if not isinstance(architecture, str) or not architecture:
        raise GGUFError("The header does not name an architecture (general.architecture).")
    return architecture


def _vocabulary(keys: _Keys, header: GGUFHeader) -> int:
    tokens = keys.get("tokenizer.ggml.tokens", absolute=True)
    if isinstance(tokens, Skipped):
        count = tokens.length
    elif isinstance(tokens, tuple):
        count = len(tokens)
    else:
        count = keys.integer("vocab_size", 0, MAX_VOCABULARY, 0)
        embedding = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
        if count == 0 and embedding is not None and len(embedding.shape) > 1:
            count = embedding.shape[1]
    if not 1 <= count <= MAX_VOCABULARY:
        raise GGUFError(f"The model's vocabulary has {count} words.")
    return count


def _quant(keys: _Keys, header: GGUFHeader) -> str:
    """The name of the mix: the header's file type, else the type that most weights have."""
    number = keys.optional("general.file_type", 0, 1 << 16, absolute=True)
    if number is not None and number % 1024 in FILE_TYPES:
        return FILE_TYPES[number % 1024]
    return dominant_type(header.tensors)


def _sliding_window(keys: _Keys, architecture: str, n_layer: int) -> tuple[int | None, tuple[bool, ...]]:
    """(window, which layers slide). A window in the header of an architecture that ignores it (phi3) is no window."""
    family = families.SLIDING_WINDOWS.get(architecture)
    if family is not None and family.only_layers not in (None, n_layer):
        family = None
    pattern = keys.get("attention.sliding_window_pattern")
    none = (None, (False,) * n_layer)
    if family is None and pattern is None:
        return none
    default = (family.window if family is not None else None) or 0
    window = keys.integer(
        "attention.sliding_window", 0, MAX_CONTEXT, 0 if family and family.fixed else default
    )
    if window == 0:
        return none
    if family is not None and family.fixed:
        window = default
    if isinstance(pattern, tuple):
        if not pattern:
            raise GGUFError("attention.sliding_window_pattern is empty.")
        return window, tuple(bool(pattern[layer % len(pattern)]) for layer in range(n_layer))
    if pattern is not None:
        period = _checked("attention.sliding_window_pattern", pattern, 0, MAX_LAYERS)
        family = families.SlidingWindow(period, dense_first=family.dense_first if family else False)
    if family is None:
        return none
    return window, tuple(family.slides(layer) for layer in range(n_layer))


def _own_cache(
    keys: _Keys, architecture: str, recurrent: tuple[bool, ...], predictors: int
) -> tuple[bool, ...]:
    n_layer = len(recurrent)
    if architecture in families.ENCODERS | families.RECURRENT | families.DIFFUSION:
        return (False,) * n_layer
    shared = keys.integer("attention.shared_kv_layers", 0, n_layer, 0)
    own = min(families.OWN_CACHE_LAYERS.get(architecture, n_layer), n_layer - shared - predictors)
    both = architecture in families.RECURRENT_AND_ATTENTION
    return tuple(layer < own and (both or not recurrent[layer]) for layer in range(n_layer))


def _state_elements(keys: _Keys, n_embd: int) -> tuple[int, int]:
    """llama-hparams.cpp: n_embd_r and n_embd_s."""
    wkv = keys.integer("wkv.head_size", 0, 65_536, 0)
    if wkv:
        return keys.integer("token_shift_count", 0, 16, 2) * n_embd, n_embd * wkv
    shortconv = keys.integer("shortconv.l_cache", 0, 65_536, 0)
    if shortconv:
        return n_embd * (shortconv - 1), 0
    kda = keys.integer("kda.head_dim", 0, 65_536, 0)
    convolution = max(keys.integer("ssm.conv_kernel", 0, 1_024, 0) - 1, 0)
    if kda:
        heads = max(keys.per_layer("attention.head_count", 1, 0, 65_536) or (0,))
        return 3 * convolution * kda * heads, kda * kda * heads
    inner = keys.integer("ssm.inner_size", 0, MAX_WIDTH, 0)
    state = keys.integer("ssm.state_size", 0, MAX_WIDTH, 0)
    groups = keys.integer("ssm.group_count", 0, 65_536, 0)
    return convolution * (inner + 2 * groups * state), state * inner


def _per_layer_input(keys: _Keys, architecture: str) -> int:
    if architecture == "gemma3n":
        return 256  # fixed in llama.cpp, whatever the header says
    return keys.integer("embedding_length_per_layer_input", 0, MAX_WIDTH, 0)


def _is_gated(header: GGUFHeader, n_ff: int) -> bool:
    """A gate of its own, or one fused into the way up; assumed where no tensor tells."""
    ups = [t for t in header.tensors if t.name.endswith("ffn_up.weight") and len(t.shape) > 1]
    fused = any(t.shape[1] >= 2 * n_ff for t in ups)
    return not ups or fused or any("ffn_gate." in t.name for t in header.tensors)


def _attention_width(header: GGUFHeader, default: int) -> int:
    widths = [t.shape[0] for t in header.tensors if t.name.endswith("attn_output.weight")]
    return max(widths, default=default)


def _expert_width(keys: _Keys, header: GGUFHeader) -> int:
    """From the header; else from the experts' tensors (older files of Mixtral's kind)."""
    width = keys.optional("expert_feed_forward_length", 0, MAX_WIDTH)
    if width is not None:
        return width
    for tensor in header.tensors:
        if "ffn_up_exps" in tensor.name and len(tensor.shape) == 3:
            return tensor.shape[1]
    return 0


def _capabilities(keys: _Keys, architecture: str, template: str | None) -> tuple[str, ...]:
    if architecture in families.ENCODERS or keys.has("pooling_type"):
        return ("embedding",)
    found = ["completion"]
    if template:
        found.append("chat")
        if "tools" in template or "tool_call" in template:
            found.append("tools")
        if "<think>" in template or "enable_thinking" in template or "reasoning_content" in template:
            found.append("reasoning")
    return tuple(found)
