from __future__ import annotations

import pytest

from localllm.core.errors import LoadFailed, OutOfMemory, UnknownArchitecture
from localllm.engines.base import Exit
from localllm.engines.load_failure import load_failure


def failure(tail: str, *, cause: str = "It ended with exit code 1.") -> LoadFailed:
    return load_failure(Exit(expected=False, exit_code=1, cause=cause, stderr_tail=tail))


def test_an_unknown_architecture_is_named() -> None:
    error = failure("0.00.1 E llama_model_load: error loading model: unknown model architecture: 'mamba9'\n")
    assert type(error) is UnknownArchitecture
    assert "'mamba9'" in error.message


@pytest.mark.parametrize(
    "line",
    [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc failed: out of memory",
        "alloc_tensor_range: failed to allocate CPU buffer of size 99",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_memory_that_did_not_suffice_is_out_of_memory(line: str) -> None:
    assert type(failure(line)) is OutOfMemory


def test_the_kernels_kill_is_out_of_memory() -> None:
    assert type(failure("", cause="The system killed it because memory ran out.")) is OutOfMemory


def test_the_first_error_is_the_cause_that_is_told() -> None:
    error = failure(
        "0.00.1 I srv load_model: loading model\n"
        "0.00.2 E gguf_init_from_reader: invalid magic characters: 'abcd', expected 'GGUF'\n"
        "0.00.3 E srv    load_model: failed to load model, '/x'\n"
    )
    assert type(error) is LoadFailed
    assert "invalid magic characters" in error.message
    assert error.details["exit_code"] == 1


def test_a_silent_death_still_has_its_cause() -> None:
    error = failure("")
    assert error.message == "The engine could not load the model. It ended with exit code 1."
