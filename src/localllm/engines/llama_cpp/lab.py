"""The asking side of the measuring process: run one request, hear its progress, get its result or its error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from localllm.core.errors import EngineCrashed, EngineStalled, from_code
from localllm.engines.exit_cause import explain_exit
from localllm.engines.llama_cpp.lab_request import (
    Advance,
    Answer,
    BenchRequest,
    BenchResult,
    EvalRequest,
    EvalResult,
    Failed,
    Request,
    TuneRequest,
    TuneResult,
)
from localllm.engines.process import child_environment

OnAdvance = Callable[[Advance], None]
_Result = TypeVar("_Result", BenchResult, EvalResult, TuneResult)


def run_bench(request: BenchRequest, on_advance: OnAdvance, *, build_dir: Path | None = None) -> BenchResult:
    """Time a model; see ``BenchRequest``. ``build_dir`` holds the llama-cpp-python to use (None = the environment's).

    Raises:
        LoadFailed, BadRequest: as the process said.
        EngineCrashed: it died; the message holds the cause.
    """
    return _run(request, BenchResult, on_advance, build_dir)


def run_eval(request: EvalRequest, on_advance: OnAdvance, *, build_dir: Path | None = None) -> EvalResult:
    """Compare models; see ``EvalRequest``. Raises as ``run_bench`` does."""
    return _run(request, EvalResult, on_advance, build_dir)


def run_tune(request: TuneRequest, on_advance: OnAdvance, *, build_dir: Path | None = None) -> TuneResult:
    """Find the fastest settings; see ``TuneRequest``. Raises as ``run_bench`` does."""
    return _run(request, TuneResult, on_advance, build_dir)


def _run(request: Request, kind: type[_Result], on_advance: OnAdvance, build_dir: Path | None) -> _Result:
    extra = {} if build_dir is None else {"PYTHONPATH": str(build_dir)}
    with subprocess.Popen(
        [sys.executable, "-m", "localllm.engines.llama_cpp.lab_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=child_environment(os.environ, extra, nonce="lab"),
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(msgspec.json.encode(request))
            child.stdin.close()
            for line in child.stdout:
                answer = msgspec.json.decode(line, type=Answer)
                if isinstance(answer, Advance):
                    on_advance(answer)
                elif isinstance(answer, Failed):
                    raise from_code(answer.code, answer.message, hint=answer.hint, param=answer.param)
                elif isinstance(answer, kind):
                    return answer
        except BrokenPipeError:
            pass  # it died before it read everything: its exit code says why
        finally:
            child.kill()
        code = child.wait()
    if code == 0:
        raise EngineStalled("The measuring process ended without a result.")
    raise EngineCrashed(f"The measuring process died: {explain_exit(code, oom_killed=False)}")
