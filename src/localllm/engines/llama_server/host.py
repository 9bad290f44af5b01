"""The child's program: llama.cpp's own server, from the xllamacpp wheel, for one model on a port of this machine.

``python -m localllm.engines.llama_server.host`` reads one line of JSON (``HostPlan``) from stdin, loads the model,
prints one line of JSON (``HostReady``) and serves until its stdin ends. llama.cpp may abort the process at any time;
that is why it has one of its own. Everything it logs goes to stderr.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version

import msgspec
import xllamacpp

from localllm.core.launch import LaunchPlan
from localllm.engines.llama_server.server_plan import (
    CONTEXT_CHECKPOINTS,
    LOG_VERBOSITY,
    PROMPT_CACHE_MIB,
    HostPlan,
    HostReady,
    batch_of,
    cpu_expert_override,
    http_threads,
    pooling_of,
    total_context,
)

_MOST_DEVICES = 128  # the length xllamacpp wants, whatever the number of devices
_LOAD_FAILED = 1
_FLASH_ATTENTION = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}


def main() -> None:
    answers = _own_stdout()
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=HostPlan)
    try:
        server = xllamacpp.Server(_parameters(plan))
    except RuntimeError:
        sys.exit(_LOAD_FAILED)  # it has logged why
    ready = HostReady(address=server.listening_address, version=version("xllamacpp"))
    with os.fdopen(answers, "wb") as out:
        out.write(msgspec.json.encode(ready) + b"\n")
    sys.stdin.buffer.read()
    os._exit(0)  # the server's own shutdown waits for connections; nothing here needs it


def _own_stdout() -> int:
    """A descriptor of the real stdout for our one answer; native code that prints there writes to stderr from now on."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _parameters(host: HostPlan) -> xllamacpp.CommonParams:
    plan = host.plan
    params = xllamacpp.CommonParams()
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [host.key]
    params.cors_origins = ""
    params.ui = False
    params.endpoint_slots = True
    params.endpoint_props = False
    params.endpoint_metrics = False
    params.n_threads_http = http_threads(plan)
    params.verbosity = LOG_VERBOSITY
    _set_model(params, plan)
    _set_memory(params, plan)
    return params


def _set_model(params: xllamacpp.CommonParams, plan: LaunchPlan) -> None:
    params.model.path = plan.model_path
    if plan.mmproj_path is not None:
        params.mmproj.path = plan.mmproj_path
        params.mmproj_use_gpu = plan.gpu_layers > 0
    if plan.lora_paths:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(path, 1.0) for path in plan.lora_paths]
    if plan.chat_template is not None:
        params.chat_template = plan.chat_template
    params.use_jinja = True
    params.prefill_assistant = False  # continuing an answer is asked for per request
    if plan.embedding:  # never for a chat: llama.cpp then reserves logits for every token of a batch
        params.embedding = True
        pooling = f"LLAMA_POOLING_TYPE_{pooling_of(plan).upper()}"
        params.pooling_type = getattr(xllamacpp.llama_pooling_type, pooling)


def _set_memory(params: xllamacpp.CommonParams, plan: LaunchPlan) -> None:
    params.fit_params = False  # the planner has decided; nothing may shrink the context behind its back
    params.n_ctx = total_context(plan)
    params.n_parallel = plan.parallel
    params.kv_unified = plan.unified_kv
    if plan.unified_kv:
        params.kv_unified_per_slot = plan.context_length
    params.n_batch, params.n_ubatch = batch_of(plan)
    params.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{plan.kv_type_k.upper()}")
    params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{plan.kv_type_v.upper()}")
    params.flash_attn_type = getattr(
        xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{_FLASH_ATTENTION[plan.flash_attention]}"
    )
    params.n_gpu_layers = plan.gpu_layers
    params.main_gpu = plan.main_gpu
    if plan.tensor_split:
        params.tensor_split = [*plan.tensor_split, *[0.0] * (_MOST_DEVICES - len(plan.tensor_split))]
    if plan.cpu_moe_layers:
        params.tensor_buft_overrides = cpu_expert_override(plan.cpu_moe_layers)
    params.swa_full = plan.swa_full
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.n_ctx_checkpoints = CONTEXT_CHECKPOINTS
    if plan.threads is not None:
        params.cpuparams.n_threads = plan.threads
    if plan.batch_threads is not None or plan.threads is not None:
        params.cpuparams_batch.n_threads = plan.batch_threads or plan.threads
    mode = {(True, True): "MMAP_MLOCK", (True, False): "MMAP", (False, True): "MLOCK", (False, False): "NONE"}
    params.load_mode = getattr(xllamacpp.llama_load_mode, f"LLAMA_LOAD_MODE_{mode[plan.mmap, plan.mlock]}")


if __name__ == "__main__":
    main()
