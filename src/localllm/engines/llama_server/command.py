"""The command that starts a llama.cpp server: our host with the bundled one, or somebody's ``llama-server`` binary."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localllm.core.launch import LaunchPlan
from localllm.engines.llama_server.server_plan import (
    CONTEXT_CHECKPOINTS,
    LOG_VERBOSITY,
    PROMPT_CACHE_MIB,
    batch_of,
    http_threads,
    pooling_of,
    total_context,
)

BINARY_NAME = "llama-server"
_HOST_MODULE = "localllm.engines.llama_server.host"


@dataclass(frozen=True)
class Launcher:
    """``binary`` None = the bundled server."""

    binary: str | None

    @property
    def bundled(self) -> bool:
        return self.binary is None


@dataclass(frozen=True)
class Command:
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def find_launcher(configured: str | None) -> Launcher | None:
    """The configured binary, else the bundled server, else a binary on PATH; None = nothing here can run.

    A configured binary that does not exist is None as well: falling back to another engine would hide the mistake.
    """
    if configured is not None:
        found = shutil.which(str(Path(configured).expanduser()))
        return Launcher(found) if found is not None else None
    if importlib.util.find_spec("xllamacpp") is not None:
        return Launcher(None)
    on_path = shutil.which(BINARY_NAME)
    return Launcher(on_path) if on_path is not None else None


def host_command() -> Command:
    """The bundled server; its plan goes over stdin."""
    return Command((sys.executable, "-m", _HOST_MODULE))


def binary_command(binary: str, plan: LaunchPlan, key: str) -> Command:
    """``llama-server`` with the plan as flags. The key goes by environment: arguments are visible to everyone."""
    batch, ubatch = batch_of(plan)
    flags = [
        *("--model", plan.model_path, "--host", "127.0.0.1", "--port", "0"),
        *("--ctx-size", str(total_context(plan)), "--parallel", str(plan.parallel)),
        *("--batch-size", str(batch), "--ubatch-size", str(ubatch)),
        *("--cache-type-k", plan.kv_type_k, "--cache-type-v", plan.kv_type_v),
        *("--flash-attn", plan.flash_attention, "--n-gpu-layers", str(plan.gpu_layers)),
        *("--main-gpu", str(plan.main_gpu), "--fit", "off"),
        *("--cache-ram", str(PROMPT_CACHE_MIB), "--ctx-checkpoints", str(CONTEXT_CHECKPOINTS)),
        *("--threads-http", str(http_threads(plan)), "--verbosity", str(LOG_VERBOSITY)),
        *("--jinja", "--no-prefill-assistant", "--slots", "--no-webui"),
    ]
    if plan.embedding:
        flags += ["--embeddings", "--pooling", pooling_of(plan)]
    if plan.threads is not None:
        flags += ["--threads", str(plan.threads)]
    if plan.batch_threads is not None:
        flags += ["--threads-batch", str(plan.batch_threads)]
    if plan.tensor_split:
        flags += ["--tensor-split", ",".join(str(share) for share in plan.tensor_split)]
    if plan.cpu_moe_layers:
        flags += ["--n-cpu-moe", str(plan.cpu_moe_layers)]
    if plan.mmproj_path is not None:
        flags += ["--mmproj", plan.mmproj_path]
    if plan.chat_template is not None:
        flags += ["--chat-template", plan.chat_template]
    for path in plan.lora_paths:
        flags += ["--lora", path]
    switches = {"--swa-full": plan.swa_full, "--mlock": plan.mlock, "--no-mmap": not plan.mmap}
    flags += [switch for switch, on in switches.items() if on]
    return Command((binary, *flags), {"LLAMA_API_KEY": key})
