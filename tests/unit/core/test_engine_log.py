from localllm.core.engine_log import LoggedBuffer, parse_buffers, parse_cache_sizes, total_bytes
from localllm.core.units import MIB

SLIDING_WINDOW = """\
load_tensors:   CPU_Mapped model buffer size =   235.16 MiB
llama_kv_cache_iswa: creating non-SWA KV cache, size = 2048 cells
llama_kv_cache:        CPU KV buffer size =     6.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 1024 cells
llama_kv_cache:        CPU KV buffer size =    15.00 MiB
llama_context:        CPU  output buffer size =     1.00 MiB
sched_reserve:        CPU compute buffer size =   515.25 MiB
"""


def test_two_caches_of_one_device_add_up() -> None:
    buffers = parse_buffers(SLIDING_WINDOW)
    assert buffers == (
        LoggedBuffer("weights", "CPU_Mapped", round(235.16 * MIB)),
        LoggedBuffer("kv", "CPU", 21 * MIB),
        LoggedBuffer("output", "CPU", MIB),
        LoggedBuffer("compute", "CPU", round(515.25 * MIB)),
    )
    assert total_bytes(buffers, "kv") == 21 * MIB


def test_the_zeros_of_a_fit_pass_are_skipped() -> None:
    fit_pass = SLIDING_WINDOW.replace("235.16", "0.00").replace("6.00", "0.00").replace("15.00", "0.00")
    assert total_bytes(parse_buffers(fit_pass + SLIDING_WINDOW), "kv") == 21 * MIB


def test_a_second_load_in_one_log_replaces_the_first() -> None:
    assert parse_buffers(SLIDING_WINDOW + SLIDING_WINDOW) == parse_buffers(SLIDING_WINDOW)


def test_a_later_reserve_replaces_the_compute_buffer() -> None:
    text = SLIDING_WINDOW + "sched_reserve:        CPU compute buffer size =   100.00 MiB\n"
    assert total_bytes(parse_buffers(text), "compute") == 100 * MIB


def test_prefixes_devices_and_recurrent_state() -> None:
    text = (
        "0.01.234.567 I llama_memory_recurrent:  CUDA0 RS buffer size =    62.81 MiB\n"
        "time=2026-01-01 level=INFO msg=x llama_context: CUDA_Host compute buffer size =    24.01 MiB\n"
    )
    assert [(b.kind, b.device) for b in parse_buffers(text)] == [
        ("recurrent", "CUDA0"),
        ("compute", "CUDA_Host"),
    ]


def test_a_log_without_buffers_gives_nothing() -> None:
    assert parse_buffers("error: out of memory\n") == ()


def test_the_summaries_of_the_caches_count_where_nothing_is_allocated() -> None:
    text = (
        "llama_kv_cache:        CPU KV buffer size =     0.00 MiB\n"
        "llama_kv_cache: size =    6.00 MiB (  2048 cells,   3 layers,  1/1 seqs), K (f16):    3.00 MiB\n"
        "llama_kv_cache: size =   15.00 MiB (  1024 cells,  15 layers,  1/1 seqs), K (f16):    7.50 MiB\n"
        "llama_memory_recurrent: size =    0.25 MiB (     1 cells,   4 layers,  1 seqs), R (f32): 0.10 MiB\n"
    )
    assert parse_cache_sizes(text) == (21 * MIB, MIB // 4)
