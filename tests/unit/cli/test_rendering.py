"""What the verbs that ask the service print of its answers."""

from __future__ import annotations

import time

from localllm.cli import doctor, list_models, load, ps, show
from localllm.core.control import (
    ActiveRequest,
    Check,
    DoctorReport,
    Identity,
    InstancePhase,
    InstanceState,
    ModelDetail,
    ModelList,
    ModelSummary,
    RequestPhase,
    State,
)

IDENTITY = Identity(version="0", nonce="n", pid=1, host="127.0.0.1", port=1, started_at=0.0)
MODEL = ModelSummary(
    name="qwen3-8b:Q4_K_M",
    quant="Q4_K_M",
    size_bytes=5 << 30,
    architecture="qwen3",
    parameters=8_200_000_000,
    trained_context_length=40_960,
    capabilities=("completion", "chat"),
    loaded=True,
)


def test_list_names_sizes_and_what_is_wrong() -> None:
    broken = ModelSummary(name="gone:Q8_0", quant="Q8_0", size_bytes=1, problem="its file cannot be found.")
    lines = list(list_models._lines(ModelList((MODEL, broken))))
    assert lines[0].split() == ["name", "size", "parameters", "context", "can", "state"]
    assert lines[1].split() == [
        "qwen3-8b:Q4_K_M",
        "5.0",
        "GiB",
        "8.2B",
        "40k",
        "completion,",
        "chat",
        "loaded",
    ]
    assert lines[2].endswith("broken")
    assert lines[3] == "gone:Q8_0: its file cannot be found."
    assert list(list_models._lines(ModelList(()))) == []


def test_show_leaves_out_what_nobody_knows() -> None:
    detail = ModelDetail(
        summary=MODEL,
        facts={"n_layer": 36, "n_expert": 0},
        chat_template="x",
        template_source="file",
        stop=("\nUser:",),
    )
    lines = list(show._lines(detail))
    shown = dict(line.split("  ", 1) for line in lines[1:])
    assert lines[0] == "qwen3-8b:Q4_K_M"
    assert shown["layers"].strip() == "36"
    assert shown["stops at"].strip() == "'\\nUser:'"
    assert "experts" not in shown
    assert "licence" not in shown


def test_ps_shows_what_is_loaded_and_what_runs() -> None:
    instance = InstanceState(
        model="qwen3-8b:Q4_K_M",
        engine="llama_server",
        phase=InstancePhase.BUSY,
        context_length=16_384,
        parallel=4,
        running=1,
        waiting=2,
        tokens_per_second=42.13,
        planned_bytes=6 << 30,
        gpu_layers=20,
        total_layers=37,
        last_used_at=time.time(),
    )
    request = ActiveRequest(
        id="chatcmpl-1",
        endpoint="chat.completions",
        model="qwen3-8b:Q4_K_M",
        phase=RequestPhase.DECODE,
        started_at=time.time() - 3,
        prompt_tokens=31,
        completion_tokens=12,
    )
    text = "\n".join(ps._lines(State(identity=IDENTITY, instances=(instance,), requests=(request,))))
    for part in (
        "busy",
        "16k × 4",
        "6.0 GiB",
        "20/37",
        "42.1",
        "1 + 2 waiting",
        "now",
        "chatcmpl-1",
        "decode",
        "31",
    ):
        assert part in text, part


def test_ps_shows_a_load_under_way_and_why_one_failed() -> None:
    loading = InstanceState(model="a", engine="llama_server", phase=InstancePhase.LOADING, progress=0.42)
    crashed = InstanceState(
        model="b", engine="llama_server", phase=InstancePhase.CRASHED, error="It was killed."
    )
    lines = list(ps._lines(State(identity=IDENTITY, instances=(loading, crashed))))
    assert "loading 42%" in lines[1]
    assert lines[-1] == "b: It was killed."


def test_load_says_what_came_of_it_and_why() -> None:
    state = InstanceState(
        model="m:Q4_K_M",
        engine="llama_cpp",
        phase=InstancePhase.READY,
        context_length=8192,
        parallel=2,
        measured_bytes=3 << 30,
        reason="all of it fits",
    )
    assert list(load._lines(state)) == [
        "m:Q4_K_M is ready on llama_cpp, 8192 tokens of context for each of 2 requests, 3.0 GiB.",
        "All of it fits",
    ]


def test_the_doctor_gives_hints_for_what_is_not_in_order() -> None:
    report = DoctorReport(
        checks=(
            Check(name="disk", state="ok", message="75 GiB free", hint="never shown"),
            Check(name="engine", state="failed", message="none", hint="Install one.\nOr two."),
        )
    )
    assert list(doctor._lines(report)) == [
        "ok    disk: 75 GiB free",
        "fail  engine: none",
        "      Install one.",
        "      Or two.",
    ]
