"""The one module that touches llama.cpp: models, contexts and grammars behind plain Python types.

llama-cpp-python's low-level API changes with llama.cpp, so every ctypes call of this engine is here and nothing of
it leaks out. It may only be imported in a worker process, since a bad file or a bug in native code aborts
whatever process it runs in. Nothing here is thread-safe except ``tokenize`` and ``piece``, which only read the
vocabulary.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import llama_cpp.llama_cpp as native
import numpy as np
from llama_cpp._ggml import libggml
from numpy.typing import NDArray

from localllm.core.errors import BadGrammar, LoadFailed, OutOfMemory, Unsupported
from localllm.core.launch import LaunchPlan

_GGML_TYPES: Final = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "bf16": 30,
}
_FLASH: Final = {"auto": -1, "off": 0, "on": 1}
_POOLING: Final = {None: -1, "none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
_CANDIDATE: Final = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""llama.h, llama_token_data."""

_LONGEST_PIECE: Final = 4096
_LOGGED_LEVELS: Final = frozenset((2, 3, 4))
"""ggml.h, ggml_log_level: info, warn, error."""

PARTIAL_STATE: Final = 1
"""llama.h, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: the sliding-window or recurrent part of a sequence's state."""


def version() -> str:
    """llama-cpp-python's version; llama.cpp's own is part of its log."""
    from importlib.metadata import version as installed

    return installed("llama-cpp-python")


def _write_log(level: int, text: bytes, _: object) -> None:
    if level in _LOGGED_LEVELS:
        os.write(2, text)


_LOG_CALLBACK: Final = native.llama_log_callback(_write_log)


def log_to_stderr() -> None:
    """Let llama.cpp's log, without its debug lines, go to descriptor 2: the binding's own callback drops most of it."""
    native.llama_log_set(_LOG_CALLBACK, ctypes.c_void_p(0))


def default_threads() -> int:
    """The processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def most_sequences() -> int:
    """How many sequences one context can tell apart."""
    return int(native.llama_max_parallel_sequences())


class Model:
    """The weights and the vocabulary of one file.

    Raises:
        LoadFailed: llama.cpp would not take the file (its log says why).
        Unsupported: the plan asks for what this engine has no code for.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        on_progress: Callable[[float], None] | None = None,
        *,
        vocab_only: bool = False,
    ) -> None:
        if plan.mmproj_path or plan.draft_path:
            raise Unsupported(
                "The llama_cpp engine has no images and no draft models.", hint="Use the llama_server engine."
            )
        native.llama_backend_init()
        parameters = _model_parameters(plan, vocab_only)
        overrides = _experts_on_cpu(plan.cpu_moe_layers)
        if plan.cpu_moe_layers:
            parameters.tensor_buft_overrides = ctypes.addressof(overrides)
        report = on_progress or _ignore

        def progress(fraction: float, _: object) -> bool:
            report(fraction)
            return True

        parameters.progress_callback = native.llama_progress_callback(progress)
        self._handle = native.llama_model_load_from_file(os.fsencode(plan.model_path), parameters)
        if not self._handle:
            raise LoadFailed(f"llama.cpp cannot load {Path(plan.model_path).name}.")
        self.vocab = native.llama_model_get_vocab(self._handle)
        self.n_vocab = int(native.llama_vocab_n_tokens(self.vocab))
        self.n_embd = int(
            native.llama_model_n_embd_out(self._handle) or native.llama_model_n_embd(self._handle)
        )
        self.n_layer = int(native.llama_model_n_layer(self._handle))
        self.trained_context_length = int(native.llama_model_n_ctx_train(self._handle))
        self.sliding_window = int(native.llama_model_n_swa(self._handle))
        self.recurrent = bool(
            native.llama_model_is_recurrent(self._handle) or native.llama_model_is_hybrid(self._handle)
        )
        self.architecture = self.metadata("general.architecture") or ""
        self.generates = self.metadata(f"{self.architecture}.attention.causal") != "false"
        self.adds_bos = bool(native.llama_vocab_get_add_bos(self.vocab))
        self._pieces: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})

    @property
    def handle(self) -> int:
        return int(self._handle)

    def metadata(self, key: str) -> str | None:
        """One value of the file's metadata as text, or None."""
        size = 1 << 20
        buffer = ctypes.create_string_buffer(size)
        length = native.llama_model_meta_val_str(self._handle, key.encode(), buffer, size)
        return buffer.value.decode("utf-8", "replace") if length >= 0 else None

    def chat_template(self, name: str | None = None) -> str | None:
        text = native.llama_model_chat_template(self._handle, name.encode() if name else None)
        return text.decode("utf-8", "replace") if text else None

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of ``text``; ``add_special`` puts BOS/EOS where the model wants them."""
        data = text.encode("utf-8", "surrogatepass")
        room = len(data) + 8
        tokens = np.empty(room, np.int32)
        pointer = tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        count = native.llama_tokenize(self.vocab, data, len(data), pointer, room, add_special, parse_special)
        found: list[int] = tokens[: max(count, 0)].tolist()
        return found

    def piece(self, token: int, *, special: bool) -> bytes:
        """The bytes a token stands for; control tokens are empty unless ``special``."""
        known = self._pieces[special]
        piece = known.get(token)
        if piece is None:
            buffer = ctypes.create_string_buffer(_LONGEST_PIECE)  # not shared: two threads ask
            size = native.llama_token_to_piece(self.vocab, token, buffer, _LONGEST_PIECE, 0, special)
            piece = known[token] = buffer.raw[: max(size, 0)]
        return piece

    def end_tokens(self) -> frozenset[int]:
        """Every token that ends an answer."""
        return frozenset(t for t in range(self.n_vocab) if native.llama_vocab_is_eog(self.vocab, t))

    def bos_piece(self) -> str:
        return self._special_text(native.llama_vocab_bos(self.vocab))

    def eos_piece(self) -> str:
        return self._special_text(native.llama_vocab_eos(self.vocab))

    def _special_text(self, token: int) -> str:
        return self.piece(token, special=True).decode("utf-8", "replace") if token >= 0 else ""

    def free(self) -> None:
        if self._handle:
            native.llama_model_free(self._handle)
            self._handle = None


class Batch:
    """The input of one ``decode``: numpy arrays that llama.cpp reads in place.

    Rows 0…``count`` - 1 are filled with ``put``; each row that wants logits gets the next output row.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0
        self._token = np.zeros(capacity, np.int32)
        self._position = np.zeros(capacity, np.int32)
        self._wants = np.zeros(capacity, np.int8)
        self._sequence = np.zeros(capacity, np.int32)
        self._one = np.ones(capacity, np.int32)
        self._sequence_pointers = (
            self._sequence.ctypes.data + np.arange(capacity, dtype=np.uintp) * self._sequence.itemsize
        )
        self._ascending = np.arange(capacity, dtype=np.int32)
        self._struct = native.llama_batch(
            n_tokens=0,
            token=_pointer(self._token, ctypes.c_int32),
            embd=None,
            pos=_pointer(self._position, ctypes.c_int32),
            n_seq_id=_pointer(self._one, ctypes.c_int32),
            seq_id=ctypes.cast(
                self._sequence_pointers.ctypes.data, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))
            ),
            logits=_pointer(self._wants, ctypes.c_int8),
        )

    def clear(self) -> None:
        self.count = 0

    def put(self, sequence: int, tokens: NDArray[np.int32], position: int, outputs: int) -> None:
        """Append ``tokens`` of ``sequence`` from ``position`` on; the last ``outputs`` of them want logits."""
        start, end = self.count, self.count + len(tokens)
        self._token[start:end] = tokens
        self._position[start:end] = self._ascending[: end - start] + position
        self._sequence[start:end] = sequence
        self._wants[start:end] = 0
        if outputs:
            self._wants[end - outputs : end] = 1
        self.count = end

    def native(self) -> native.llama_batch:
        self._struct.n_tokens = self.count
        return self._struct


class Context:
    """One llama_context: the KV cache of up to ``sequences`` sequences, and the computation on it."""

    def __init__(
        self,
        model: Model,
        plan: LaunchPlan,
        *,
        sequences: int,
        cells: int,
        max_outputs: int,
        embeddings: bool = False,
    ) -> None:
        self.model = model
        self.sequences = sequences
        threads = plan.threads or default_threads()
        parameters = _context_parameters(plan, threads)
        parameters.n_ctx = cells
        parameters.n_seq_max = sequences
        parameters.n_outputs_max = max_outputs
        parameters.embeddings = embeddings
        self._handle = native.llama_init_from_model(model.handle, parameters)
        if not self._handle:
            raise OutOfMemory(
                "llama.cpp could not set up the context.",
                hint="Load the model with a shorter context or fewer parallel sequences.",
            )
        self.cells = int(native.llama_n_ctx(self._handle))
        self.sequence_cells = int(native.llama_n_ctx_seq(self._handle))
        self.max_batch = int(native.llama_n_batch(self._handle))
        self.max_outputs = max_outputs
        self.batch = Batch(self.max_batch)
        self._memory = native.llama_get_memory(self._handle)
        self._logits_address = 0
        self._logits_rows = 0
        self._logits = np.zeros((0, model.n_vocab), np.float32)
        _apply_adapters(self._handle, model, plan.lora_paths)

    def set_threads(self, threads: int, batch_threads: int) -> None:
        native.llama_set_n_threads(self._handle, threads, batch_threads)

    def decode(self) -> int:
        """Run the batch. 0 done; 1 no room in the KV cache; 2 or below -1 stopped partway; -1 the batch was wrong."""
        return int(native.llama_decode(self._handle, self.batch.native()))

    def logits(self, rows: int) -> NDArray[np.float32]:
        """A view (rows, n_vocab) of the last decode's outputs in batch order; valid, and writable, until the next."""
        address = ctypes.cast(native.llama_get_logits(self._handle), ctypes.c_void_p).value or 0
        if address != self._logits_address or rows > self._logits_rows:
            kind = ctypes.c_float * self.model.n_vocab * rows
            self._logits = np.ctypeslib.as_array(kind.from_address(address))
            self._logits_address, self._logits_rows = address, rows
        return self._logits

    def embedding(self, sequence: int) -> NDArray[np.float32]:
        """The pooled embedding of one sequence after ``decode``, copied."""
        pointer = native.llama_get_embeddings_seq(self._handle, sequence)
        return np.ctypeslib.as_array(pointer, (self.model.n_embd,)).copy()

    # ------------------------------------------------------------ memory

    def remove(self, sequence: int, start: int = 0) -> bool:
        """Forget ``sequence`` from position ``start`` on. False: this memory cannot be cut there."""
        return bool(native.llama_memory_seq_rm(self._memory, sequence, start, -1))

    def copy(self, source: int, target: int, length: int) -> None:
        """Let ``target`` share the first ``length`` positions of ``source``."""
        native.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def first_position(self, sequence: int) -> int:
        """The lowest position still held (above 0 once a sliding window moved on), -1 if empty."""
        return int(native.llama_memory_seq_pos_min(self._memory, sequence))

    def last_position(self, sequence: int) -> int:
        return int(native.llama_memory_seq_pos_max(self._memory, sequence))

    def clear(self) -> None:
        if self._memory:  # encoders have none
            native.llama_memory_clear(self._memory, True)

    def save_state(self, sequence: int, flags: int = 0) -> bytes:
        """The state of one sequence; with ``PARTIAL_STATE`` only what cannot be cut back."""
        size = native.llama_state_seq_get_size_ext(self._handle, sequence, flags)
        buffer = (ctypes.c_uint8 * size)()
        written = native.llama_state_seq_get_data_ext(self._handle, buffer, size, sequence, flags)
        return bytes(memoryview(buffer)[:written])

    def load_state(self, sequence: int, state: bytes, flags: int = 0) -> bool:
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        read = native.llama_state_seq_set_data_ext(self._handle, buffer, len(state), sequence, flags)
        return bool(read)

    def free(self) -> None:
        if self._handle:
            native.llama_free(self._handle)
            self._handle = None


class GrammarMask:
    """A compiled GBNF grammar that follows one answer. Compile only what a probe has survived: errors abort.

    Raises:
        BadGrammar: llama.cpp does not take the grammar.
    """

    def __init__(self, model: Model, gbnf: str) -> None:
        self._sampler = native.llama_sampler_init_grammar(model.vocab, gbnf.encode(), b"root")
        if not self._sampler:
            raise BadGrammar("The grammar cannot be compiled.", param="grammar")
        weakref.finalize(self, native.llama_sampler_free, self._sampler)
        self._one = np.zeros(1, _CANDIDATE)
        self._all: NDArray[np.void] | None = None
        self._n_vocab = model.n_vocab

    def allows(self, token: int) -> bool:
        self._one[0] = (token, 1.0, 0.0)
        return bool(np.isfinite(self._apply(self._one)["logit"][0]))

    def mask(self, logits: NDArray[np.float32]) -> None:
        """Set the logits of every token that the grammar forbids here to -inf, in place (slow: whole vocabulary)."""
        if self._all is None:
            self._all = np.zeros(self._n_vocab, _CANDIDATE)
        self._all["id"] = np.arange(self._n_vocab, dtype=np.int32)
        self._all["logit"] = logits
        logits[:] = self._apply(self._all)["logit"]

    def accept(self, token: int) -> None:
        """Follow ``token``, which the grammar must allow."""
        native.llama_sampler_accept(self._sampler, token)

    def _apply(self, candidates: NDArray[np.void]) -> NDArray[np.void]:
        array = native.llama_token_data_array(
            data=candidates.ctypes.data_as(native.llama_token_data_p),
            size=len(candidates),
            selected=-1,
            sorted=False,
        )
        native.llama_sampler_apply(self._sampler, ctypes.byref(array))
        return candidates


def _ignore(_: float) -> None:
    return


def _pointer(array: NDArray[np.generic], kind: type) -> object:
    return array.ctypes.data_as(ctypes.POINTER(kind))


def _model_parameters(plan: LaunchPlan, vocab_only: bool) -> native.llama_model_params:
    parameters = native.llama_model_default_params()
    parameters.vocab_only = vocab_only
    parameters.n_gpu_layers = plan.gpu_layers
    parameters.main_gpu = plan.main_gpu
    parameters.load_mode = (native.LLAMA_LOAD_MODE_MMAP if plan.mmap else 0) | (
        native.LLAMA_LOAD_MODE_MLOCK if plan.mlock else 0
    )
    if plan.tensor_split:
        shares = (ctypes.c_float * native.llama_max_devices())()
        for device, share in enumerate(plan.tensor_split[: len(shares)]):
            shares[device] = share
        parameters.tensor_split = shares
    return parameters


class _BufferOverride(ctypes.Structure):
    """llama.h, llama_model_tensor_buft_override."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def _experts_on_cpu(layers: int) -> ctypes.Array[_BufferOverride]:
    """Overrides that keep the experts of the first ``layers`` layers in CPU memory (as llama.cpp's --n-cpu-moe)."""
    buffer_type = libggml.ggml_backend_cpu_buffer_type
    buffer_type.restype = ctypes.c_void_p
    overrides = (_BufferOverride * (layers + 1))()  # the last one stays empty: it ends the list
    for layer in range(layers):
        pattern = rf"blk\.{layer}\.ffn_(up|down|gate|gate_up)_(ch|)exps".encode()
        overrides[layer] = _BufferOverride(pattern, buffer_type())
    return overrides


def _context_parameters(plan: LaunchPlan, threads: int) -> native.llama_context_params:
    parameters = native.llama_context_default_params()
    parameters.n_batch = plan.batch
    parameters.n_ubatch = min(plan.ubatch, plan.batch)
    parameters.n_threads = threads
    parameters.n_threads_batch = plan.batch_threads or threads
    parameters.type_k = _GGML_TYPES[plan.kv_type_k]
    parameters.type_v = _GGML_TYPES[plan.kv_type_v]
    parameters.flash_attn_type = _FLASH[plan.flash_attention]
    parameters.pooling_type = _POOLING[plan.pooling]
    parameters.swa_full = plan.swa_full
    parameters.kv_unified = plan.unified_kv
    parameters.no_perf = True
    return parameters


def _apply_adapters(context: int, model: Model, paths: Sequence[str]) -> None:
    if not paths:
        return
    adapters = (ctypes.c_void_p * len(paths))()
    for index, path in enumerate(paths):
        adapter = native.llama_adapter_lora_init(model.handle, os.fsencode(path))
        if not adapter:
            raise LoadFailed(f"llama.cpp cannot load the adapter {Path(path).name}.")
        adapters[index] = ctypes.cast(adapter, ctypes.c_void_p)
    scales = (ctypes.c_float * len(paths))(*([1.0] * len(paths)))
    native.llama_set_adapters_lora(context, adapters, len(paths), scales)
