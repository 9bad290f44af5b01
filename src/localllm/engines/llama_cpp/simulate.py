"""Asking llama.cpp itself how much memory a plan takes, from the header alone: exact, in milliseconds, without weights.

The planner's closed formulas answer everywhere and at once; where llama-cpp-python is installed, this is the second
opinion that keeps them honest. One worker process serves all questions; a header that aborts it costs one restart.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import sys
import threading
from importlib.util import find_spec
from types import TracebackType
from typing import Final

from msgspec import Struct

from localllm.core.engine_log import LoggedBuffer
from localllm.core.errors import EngineUnavailable, GenerationFailed
from localllm.core.gguf import GGUFHeader
from localllm.core.gguf_write import header_bytes
from localllm.core.kv_cache import total_context
from localllm.core.launch import LaunchPlan

DEADLINE_S: Final = 30.0


class Question(Struct, frozen=True, kw_only=True):
    """Everything the answer depends on, hence the key of the cache."""

    header: bytes
    context: int
    sequences: int
    unified: bool
    batch: int
    ubatch: int
    outputs: int
    kv_type_k: str
    kv_type_v: str
    flash_attention: str
    swa_full: bool
    gpu_layers: int
    embedding: bool


def question_of(header: GGUFHeader, n_vocab: int, plan: LaunchPlan, *, outputs: int) -> Question:
    """What to ask for this plan; ``outputs`` is how many tokens of a batch get logits."""
    architecture = str(header.metadata["general.architecture"])
    return Question(
        header=header_bytes(architecture, header.metadata, header.tensors, n_vocab),
        context=total_context(plan),
        sequences=plan.parallel,
        unified=plan.unified_kv,
        batch=plan.batch,
        ubatch=plan.ubatch,
        outputs=outputs,
        kv_type_k=plan.kv_type_k,
        kv_type_v=plan.kv_type_v,
        flash_attention=plan.flash_attention,
        swa_full=plan.swa_full,
        gpu_layers=plan.gpu_layers,
        embedding=plan.embedding,
    )


def available() -> bool:
    """Whether llama-cpp-python is installed (it is not imported here)."""
    return find_spec("llama_cpp") is not None


class Simulator:
    """A context manager that holds the worker; answers are cached for its lifetime. Blocking, one caller at a time."""

    def __init__(self) -> None:
        self._cache: dict[Question, tuple[LoggedBuffer, ...]] = {}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Simulator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def ask(self, question: Question) -> tuple[LoggedBuffer, ...]:
        """llama.cpp's buffers for this plan, weights excepted (they are the planner's to place).

        Raises:
            EngineUnavailable: llama-cpp-python is not installed.
            GenerationFailed: llama.cpp refused the header, crashed on it, or took too long.
        """
        if question not in self._cache:
            self._cache[question] = self._ask(question)
        return self._cache[question]

    def _ask(self, question: Question) -> tuple[LoggedBuffer, ...]:
        process = self._running()
        request = {name: getattr(question, name) for name in question.__struct_fields__}
        request["header"] = base64.b64encode(question.header).decode("ascii")
        reply = _exchange(process, json.dumps(request) + "\n")
        if reply is None:
            self._stop()
            raise GenerationFailed("llama.cpp crashed or hung while it sized this header.")
        decoded = json.loads(reply)
        if decoded["error"]:
            raise GenerationFailed(
                f"The simulation failed: {decoded['error']}.", details={"log": decoded["log"][-2_000:]}
            )
        return tuple(LoggedBuffer(kind, device, size) for kind, device, size in decoded["buffers"])

    def _running(self) -> subprocess.Popen[str]:
        if self._process is not None:
            if self._process.poll() is None:
                return self._process
            self._stop()
        if not available():
            raise EngineUnavailable(
                "The simulation needs llama-cpp-python.", hint="pip install 'localllm[llama-cpp]'"
            )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "localllm.engines.llama_cpp.simulate_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def _exchange(process: subprocess.Popen[str], request: str) -> str | None:
    """Send a line, wait for a line; None when the worker died or missed its deadline."""
    answers: queue.Queue[str] = queue.Queue()

    def talk() -> None:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
            answers.put(process.stdout.readline())
        except (OSError, ValueError):
            answers.put("")

    threading.Thread(target=talk, daemon=True).start()
    try:
        return answers.get(timeout=DEADLINE_S) or None
    except queue.Empty:
        return None
