"""A believable machine at one frozen moment: two loaded models, a few chats, an hour of requests.

What the terminal app's tests and pictures show. Nothing here depends on the clock, the locale or the machine.
"""

from __future__ import annotations

import math

from localllm.core.config import Settings
from localllm.core.control import (
    ActiveRequest,
    ChatDetail,
    ChatMessage,
    ChatSettings,
    ChatSummary,
    Check,
    ConfigEntry,
    DoctorReport,
    FitRow,
    FitTable,
    History,
    Identity,
    InstancePhase,
    InstanceState,
    Live,
    ModelSummary,
    PullPreview,
    RequestPhase,
    RequestRecord,
    SearchHit,
    Series,
    State,
    Verdict,
)
from localllm.core.machine import DeviceKind, DeviceSample

GIB = 1 << 30
NOW = 1_790_000_000.0

IDENTITY = Identity(
    version="0.1.0", nonce="n0nce", pid=4242, host="127.0.0.1", port=11500, started_at=NOW - 7200
)

GPU = DeviceSample(
    id="cuda:0",
    name="NVIDIA GeForce RTX 4060",
    kind=DeviceKind.GPU,
    memory_total_bytes=8 * GIB,
    memory_used_bytes=int(5.1 * GIB),
    utilisation_percent=87,
    temperature_celsius=71,
    power_watts=112,
    clock_mhz=2460,
)
CPU = DeviceSample(
    id="cpu",
    name="AMD Ryzen 7 7840U",
    kind=DeviceKind.CPU,
    memory_total_bytes=32 * GIB,
    memory_used_bytes=int(9.2 * GIB),
    utilisation_percent=18,
    temperature_celsius=58,
    clock_mhz=3300,
)

QWEN = InstanceState(
    model="qwen3-8b",
    engine="llama_server",
    phase=InstancePhase.BUSY,
    context_length=16384,
    parallel=4,
    running=2,
    waiting=0,
    kv_used_tokens=12_300,
    kv_total_tokens=65_536,
    tokens_per_second=42.1,
    planned_bytes=int(5.0 * GIB),
    measured_bytes=int(4.9 * GIB),
    gpu_layers=37,
    total_layers=37,
    loaded_at=NOW - 1800,
    last_used_at=NOW - 1,
    pid=5151,
)
EMBEDDER = InstanceState(
    model="nomic-embed-v1.5",
    engine="llama_server",
    phase=InstancePhase.READY,
    context_length=2048,
    parallel=1,
    kv_used_tokens=0,
    kv_total_tokens=2048,
    planned_bytes=int(0.3 * GIB),
    measured_bytes=int(0.3 * GIB),
    gpu_layers=13,
    total_layers=13,
    loaded_at=NOW - 900,
    last_used_at=NOW - 600,
    pid=5252,
)

MODELS = (
    ModelSummary(
        name="qwen3-8b",
        quant="Q4_K_M",
        size_bytes=5_027_783_488,
        architecture="qwen3",
        parameters=8_190_735_360,
        trained_context_length=40_960,
        capabilities=("chat", "tools", "reasoning"),
        loaded=True,
        added_at=NOW - 86_400 * 3,
    ),
    ModelSummary(
        name="nomic-embed-v1.5",
        quant="Q8_0",
        size_bytes=145_391_904,
        architecture="nomic-bert",
        parameters=136_727_040,
        trained_context_length=2048,
        capabilities=("embeddings",),
        loaded=True,
        added_at=NOW - 86_400 * 8,
    ),
    ModelSummary(
        name="gemma3-270m",
        quant="Q4_K_M",
        size_bytes=253_113_024,
        architecture="gemma3",
        parameters=268_098_176,
        trained_context_length=32_768,
        capabilities=("completion",),
        added_at=NOW - 86_400 * 8,
    ),
    ModelSummary(
        name="llama3.3-70b",
        quant="Q4_K_M",
        size_bytes=42_520_398_432,
        architecture="llama",
        parameters=70_553_706_560,
        trained_context_length=131_072,
        owner="ollama",
        capabilities=("chat", "tools"),
        added_at=NOW - 86_400 * 40,
    ),
)

REQUESTS = (
    ActiveRequest(
        id="req-9",
        endpoint="/v1/chat/completions",
        model="qwen3-8b",
        phase=RequestPhase.DECODE,
        started_at=NOW - 4,
        client="aider",
        prompt_tokens=2210,
        prefilled_tokens=2210,
        completion_tokens=148,
        tokens_per_second=22.4,
    ),
    ActiveRequest(
        id="req-10",
        endpoint="chat",
        model="qwen3-8b",
        phase=RequestPhase.PREFILL,
        started_at=NOW - 1,
        client="app",
        prompt_tokens=900,
        prefilled_tokens=412,
    ),
)

LIVE = Live(
    tokens_per_second=42.1,
    last_ttft_ms=180,
    last_tokens_per_second=41.7,
    running=2,
    waiting=0,
    context_used=1210,
    context_length=16_384,
)

STATE = State(
    identity=IDENTITY,
    devices=(CPU, GPU),
    instances=(QWEN, EMBEDDER),
    models=MODELS,
    requests=REQUESTS,
    live=LIVE,
    chats_revision=1,
    records_revision=1,
)

IDLE = State(
    identity=IDENTITY, devices=(CPU,), models=MODELS[2:3], live=Live(), chats_revision=1, records_revision=1
)

SKY = """Sunlight is a mix of colours, and air scatters the short waves far more than the long ones.

- The strength goes with **1/λ⁴** (Rayleigh scattering)
- Blue at 450 nm is scattered about *four times* as much as red at 650 nm

```python
def scattered(nm: float) -> float:
    return (650 / nm) ** 4

print(f"{scattered(450):.1f}")  # 4.4
```

Violet is scattered even more, but the sun sends less of it and the eye sees it badly."""

CHAT = ChatDetail(
    summary=ChatSummary(
        id="chat-1", title="Why is the sky blue?", updated_at=NOW - 95, model="qwen3-8b", message_count=5
    ),
    settings=ChatSettings(model="qwen3-8b", temperature=0.7),
    messages=(
        ChatMessage(
            id="m1", parent_id=None, role="user", content="Why is the sky blue?", created_at=NOW - 140
        ),
        ChatMessage(
            id="m2",
            parent_id="m1",
            role="assistant",
            content="Because of Rayleigh scattering.",
            created_at=NOW - 135,
            model="qwen3-8b",
            finish_reason="stop",
            prompt_tokens=18,
            completion_tokens=9,
            ttft_ms=160,
            tokens_per_second=40.2,
        ),
        ChatMessage(
            id="m3",
            parent_id="m1",
            role="assistant",
            content=SKY,
            reasoning="The user asks about the sky. Rayleigh scattering; mention the fourth power and violet.",
            reasoning_ms=3200,
            created_at=NOW - 100,
            model="qwen3-8b",
            finish_reason="stop",
            prompt_tokens=1210,
            cached_tokens=96,
            completion_tokens=212,
            ttft_ms=180,
            tokens_per_second=42.1,
        ),
    ),
    leaf_id="m3",
)

CHATS = (
    CHAT.summary,
    ChatSummary(id="chat-2", title="Rust lifetimes in a parser", updated_at=NOW - 3900, message_count=12),
    ChatSummary(id="chat-3", title="Rename photos by date", updated_at=NOW - 90_000, message_count=4),
    ChatSummary(id="chat-4", title="Übersetzung Wartungsplan", updated_at=NOW - 86_400 * 6, message_count=8),
)


def fit_table(model: str, context_length: int | None, kv_type: str | None) -> FitTable:
    """A table whose figures move with context and KV type, by simple arithmetic on made-up sizes."""
    length = context_length or 16_384
    kind = kv_type or "f16"
    per_token = {"f16": 147_456, "q8_0": 78_336, "q4_0": 41_472}.get(kind, 147_456)
    budget = int(7.2 * GIB)
    rows = []
    for quant, file_gib, kld, quality in (
        ("Q8_0", 8.1, 0.003, "nearly lossless"),
        ("Q6_K", 6.3, 0.008, "very close"),
        ("Q5_K_M", 5.4, 0.016, "close"),
        ("Q4_K_M", 4.7, 0.033, "good, the default"),
        ("IQ4_XS", 4.2, 0.041, "good, smaller"),
        ("Q3_K_M", 3.8, 0.095, "visibly worse"),
        ("Q2_K", 3.0, 0.31, "not advised"),
    ):
        weights = int(file_gib * GIB)
        kv = per_token * length
        total = weights + kv + int(0.3 * GIB)
        left = budget - weights - int(0.3 * GIB)
        verdict = (
            Verdict.FITS
            if total <= 0.95 * budget
            else Verdict.TIGHT
            if total <= budget
            else Verdict.PARTIAL
            if file_gib < 8
            else Verdict.NO
        )
        on_gpu = verdict in (Verdict.FITS, Verdict.TIGHT)
        pace = 205 / file_gib if on_gpu else 9.0
        rows.append(
            FitRow(
                quant=quant,
                here=quant == "Q4_K_M",
                file_bytes=weights,
                file_bytes_source="file" if quant == "Q4_K_M" else "formula",
                weights_bytes=weights,
                kv_bytes=kv,
                compute_bytes=int(0.3 * GIB),
                overhead_bytes=0,
                total_bytes=total,
                budget_bytes=budget,
                verdict=verdict,
                gpu_layers=37 if on_gpu else 24,
                total_layers=37,
                longest_context=max(0, left // per_token // 1024 * 1024) or None,
                decode_tokens_per_second=pace,
                decode_low=pace * 0.85,
                decode_high=pace * 1.1,
                quality=quality,
                quality_kld=kld,
                recommended=quant == "Q4_K_M",
            )
        )
    return FitTable(
        model=model,
        device="NVIDIA GeForce RTX 4060",
        context_length=length,
        kv_type_k=kind,
        kv_type_v=kind,
        parallel=1,
        trained_context_length=40_960,
        rows=tuple(rows),
        recommendation="Q4_K_M is the best that fits whole on the RTX 4060 with this context.",
    )


HITS = (
    SearchHit(
        reference="hf.co/Qwen/Qwen3-8B-GGUF",
        title="Qwen3 8B",
        source="Hugging Face",
        downloads=1_240_000,
        parameters=8_190_735_360,
        licence="apache-2.0",
        purposes=("chat", "tools"),
        why="Fits whole in Q4_K_M, the best of its size here.",
    ),
    SearchHit(
        reference="hf.co/google/gemma-3-4b-it-qat-q4_0-gguf",
        title="Gemma 3 4B",
        source="Hugging Face",
        downloads=310_000,
        gated=True,
        parameters=3_880_263_168,
        licence="gemma",
        purposes=("chat", "vision"),
    ),
    SearchHit(
        reference="ollama.com/library/smollm2:135m",
        title="SmolLM2 135M",
        source="Ollama",
        parameters=134_515_008,
        purposes=("chat",),
    ),
)

PREVIEW = PullPreview(
    reference="hf.co/Qwen/Qwen3-8B-GGUF",
    name="qwen3-8b:Q4_K_M",
    origin="hf.co/Qwen/Qwen3-8B-GGUF",
    quant="Q4_K_M",
    quant_reason="The best that fits whole on the RTX 4060.",
    files=("Qwen3-8B-Q4_K_M.gguf",),
    size_bytes=5_027_783_488,
    missing_bytes=5_027_783_488,
    free_bytes=80 * GIB,
    reserve_bytes=2 * GIB,
    architecture="qwen3",
    parameters=8_190_735_360,
    trained_context_length=40_960,
    licence="apache-2.0",
    capabilities=("chat", "tools", "reasoning"),
    fit=fit_table("qwen3-8b", 8192, "f16"),
)


def history(seconds: float) -> History:
    """Smooth made-up curves over the last ``seconds``."""
    count = 150
    times = tuple(NOW - seconds + seconds * i / (count - 1) for i in range(count))
    wave = [math.sin(i / 9) * math.sin(i / 31) for i in range(count)]
    return History(
        times=times,
        series=(
            Series(
                name="tokens_per_second",
                unit="tokens/s",
                values=tuple(max(0.0, 30 + 25 * w) if i > 20 else None for i, w in enumerate(wave)),
            ),
            Series(name="ttft_ms", unit="ms", values=tuple(180 + 80 * abs(w) for w in wave)),
            Series(name="tpot_ms", unit="ms", values=tuple(24 + 6 * w for w in wave)),
            Series(
                name="cuda:0:memory_used_bytes",
                unit="bytes",
                values=tuple((3.2 if i < 60 else 5.1) * GIB for i in range(count)),
            ),
        ),
    )


RECORDS = tuple(
    RequestRecord(
        id=f"req-{8 - i}",
        created_at=NOW - 40 - i * 73,
        endpoint=endpoint,
        model=model,
        engine="llama_server",
        client=client,
        stream=stream,
        status=status,
        error_code=code,
        finish_reason=None if code else "stop",
        prompt_tokens=prompt,
        cached_tokens=cached,
        completion_tokens=completion,
        queue_ms=3.0,
        ttft_ms=ttft,
        tpot_ms=23.6,
        total_ms=None if ttft is None else ttft + 23.6 * (completion or 0),
        tokens_per_second=pace,
        context_length=16_384,
    )
    for i, (
        endpoint,
        model,
        client,
        stream,
        status,
        code,
        prompt,
        cached,
        completion,
        ttft,
        pace,
    ) in enumerate(
        (
            ("/v1/chat/completions", "qwen3-8b", "aider", True, 200, None, 2210, 1980, 412, 180.0, 42.3),
            ("chat", "qwen3-8b", "app", True, 200, None, 1210, 96, 212, 181.0, 42.1),
            ("/v1/embeddings", "nomic-embed-v1.5", "python", False, 200, None, 512, 0, None, 12.0, None),
            (
                "/v1/chat/completions",
                "qwen3-8b",
                "aider",
                True,
                400,
                "context_length_exceeded",
                18_800,
                None,
                None,
                None,
                None,
            ),
            ("/v1/chat/completions", "qwen3-8b", "curl", False, 200, None, 24, 0, 48, 95.0, 43.0),
            ("/v1/completions", "gemma3-270m", "python", True, 499, "cancelled", 40, 0, 17, 60.0, 88.2),
            (
                "/v1/chat/completions",
                "qwen9",
                "curl",
                False,
                404,
                "model_not_found",
                None,
                None,
                None,
                None,
                None,
            ),
        )
    )
)


def config_entries(settings: Settings | None = None) -> tuple[ConfigEntry, ...]:
    """A few settings of every kind, one from each source."""
    del settings
    return (
        ConfigEntry(
            key="server.host",
            value="127.0.0.1",
            default="127.0.0.1",
            source="default",
            help="Address the port binds to; anything but loopback needs server.api_keys",
            needs_restart=True,
        ),
        ConfigEntry(
            key="server.port",
            value=11500,
            default=11500,
            source="default",
            type="integer",
            help="Port of the OpenAI-compatible server; 0 takes a free one",
            needs_restart=True,
        ),
        ConfigEntry(
            key="server.api_keys",
            value=[],
            default=[],
            source="default",
            type="list",
            secret=True,
            help="Keys that clients of /v1 must send; empty = none needed on loopback",
        ),
        ConfigEntry(
            key="server.queue_limit",
            value=64,
            default=32,
            source="file",
            where="config.toml:4",
            type="integer",
            help="Requests that may wait per model before 429",
        ),
        ConfigEntry(
            key="engine.kv_type",
            value="q8_0",
            default="f16",
            source="environment",
            where="LOCALLLM_ENGINE_KV_TYPE",
            type="choice",
            choices=("f16", "bf16", "q8_0", "q5_1", "q4_0"),
            help="Type of the KV cache",
        ),
        ConfigEntry(
            key="engine.context_length",
            value=None,
            default=None,
            source="default",
            type="integer",
            help="Context per request in tokens; unset = what fits, at most the trained length",
        ),
        ConfigEntry(
            key="models.keep_alive_seconds",
            value=1800.0,
            default=1800.0,
            source="default",
            type="number",
            help="Unload a model idle for so long; unset = keep it until the memory is needed",
        ),
        ConfigEntry(
            key="ui.theme",
            value="localllm-dark",
            default="localllm-dark",
            source="default",
            help="Theme of the terminal app",
        ),
        ConfigEntry(
            key="ui.plots",
            value="braille",
            default="braille",
            source="default",
            type="choice",
            choices=("braille", "ascii"),
            help="How plots are drawn",
        ),
        ConfigEntry(
            key="gateway.audit",
            value=False,
            default=False,
            source="default",
            type="boolean",
            help="Note each request, without its content, in a log that shows tampering",
        ),
    )


DOCTOR = DoctorReport(
    checks=(
        Check(name="port", state="ok", message="127.0.0.1:11500 answers in 2 ms"),
        Check(name="engine", state="ok", message="llama_server is ready (xllamacpp)"),
        Check(name="gpu", state="ok", message="NVIDIA GeForce RTX 4060, driver 565.57, 8.0 GiB"),
        Check(
            name="memory",
            state="warning",
            message="browser holds 1.1 GiB of the GPU's memory",
            hint="Close it, or set engine.memory_margin_bytes lower.",
        ),
        Check(
            name="threads",
            state="failed",
            message="16 threads on 8 physical cores slow decoding down",
            hint="localllm config set engine.threads 8",
        ),
    )
)
