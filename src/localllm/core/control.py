"""The wire types of the control namespace ``/localllm/*``: what the service says to its own app and CLI.

Only shapes live here. The service builds them, the client decodes them, the terminal app binds to them, and the
reference docs list them. Every struct is frozen: a new state is a new object. JSON field names are the attribute
names. Times are Unix seconds (wall clock, for people) unless the name says ``_ms``; bytes are bytes.

Routes (all need the admin key, ``Authorization: Bearer …``, except identity):

====== ================================== ==========================================================================
GET    /localllm/identity                 → Identity (no key: proves by nonce which service listens here)
GET    /localllm/state                    → State
GET    /localllm/events                   → SSE: one ``snapshot`` (State), then ``section`` events (StateDelta)
GET    /localllm/models                   → ModelList
GET    /localllm/models/{name}            → ModelDetail
DELETE /localllm/models/{name}?force=     → Removed
POST   /localllm/import                   ImportRequest → Task
GET    /localllm/search?query=&limit=     → SearchResults (the catalogue and Hugging Face)
POST   /localllm/preview                  PullRequest → PullPreview (nothing is fetched but the header)
POST   /localllm/pull                     PullRequest → Task
POST   /localllm/downloads/{id}/{action}  → Task (action: pause, resume or cancel)
PUT    /localllm/downloads/limit          DownloadLimit → DownloadLimit
POST   /localllm/verify/{name}            → Task (reads the model's files again)
POST   /localllm/collect                  → Collected (deletes what no model and no pull needs)
GET    /localllm/fit?model=&context_length=&kv_type=&parallel=   → FitTable
POST   /localllm/load                     LoadRequest → InstanceState (answers when ready; SSE of Task with ?stream=1)
POST   /localllm/unload                   UnloadRequest → InstanceState
GET    /localllm/hardware                 → core.machine.Machine
GET    /localllm/history?seconds=         → History
GET    /localllm/requests?limit=&before=  → RequestList
GET    /localllm/requests/{id}            → RequestRecord
GET    /localllm/chats?query=             → ChatList
POST   /localllm/chats                    ChatPatch → ChatDetail
GET    /localllm/chats/{id}               → ChatDetail
PATCH  /localllm/chats/{id}               ChatPatch → ChatDetail
DELETE /localllm/chats/{id}               → Removed
POST   /localllm/chats/{id}/send          SendRequest → Sent       (the reply is generated inside the service)
POST   /localllm/chats/{id}/regenerate    RegenerateRequest → Sent
POST   /localllm/chats/{id}/stop          → ChatDetail
GET    /localllm/chats/{id}/stream?message_id=   → SSE of ReplyEvent: first the text so far, then deltas, then done
GET    /localllm/chats/{id}/export        → text/markdown
GET    /localllm/config                   → ConfigView
PUT    /localllm/config                   ConfigChange → ConfigView
GET    /localllm/doctor                   → DoctorReport
GET    /localllm/keys                     → core.gateway.KeyList
POST   /localllm/keys                     core.gateway.KeyRequest → core.gateway.KeyCreated (the key is shown once)
DELETE /localllm/keys/{name}?forget=      → Removed (revoked; with forget, a revoked one is also taken off the list)
GET    /localllm/gateway                  → core.gateway.GatewayView
GET    /localllm/audit                    → core.gateway.AuditReport (reads and checks the whole log)
GET    /localllm/logs?lines=              → text/plain
GET    /localllm/aliases                  → core.aliases.AliasList
PUT    /localllm/aliases/{name}           core.aliases.Targets → core.aliases.Alias
POST   /localllm/rollback/{name}          → core.aliases.Alias (as it was before its last change)
DELETE /localllm/aliases/{name}           → Removed
POST   /localllm/route                    core.aliases.RouteQuestion → core.aliases.Route (a dry run)
POST   /localllm/shutdown                 ShutdownRequest → Identity (drains, then exits)
====== ================================== ==========================================================================

Errors have the port's body: ``{"error": {"message", "type", "param", "code", "hint", "details"}}``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct

from localllm.core.generation import Sampling
from localllm.core.machine import DeviceSample, Machine

# ---------------------------------------------------------------- who is there


class Identity(Struct, frozen=True, kw_only=True):
    """``nonce`` is drawn at each start and lies, with the admin key, in the state folder: it tells our service from others."""

    service: Literal["localllm"] = "localllm"
    version: str
    nonce: str
    pid: int
    host: str
    port: int
    started_at: float


# ---------------------------------------------------------------- live state


class InstancePhase(StrEnum):
    LOADING = "loading"
    READY = "ready"
    BUSY = "busy"
    DRAINING = "draining"
    UNLOADING = "unloading"
    CRASHED = "crashed"
    QUARANTINED = "quarantined"


class InstanceState(Struct, frozen=True, kw_only=True):
    """One model that is loaded, loading or has crashed. ``engine_counters`` only grow: what the engine counts inside
    (steps, prefilled tokens, decoded rows, seconds of a step), by name, where it can tell. ``progress`` 0…1 while loading."""

    model: str
    engine: str
    phase: InstancePhase
    progress: float | None = None
    stage: str | None = None
    context_length: int | None = None
    parallel: int | None = None
    running: int = 0
    waiting: int = 0
    waiting_by_tier: dict[str, int] = {}
    kv_used_tokens: int | None = None
    kv_total_tokens: int | None = None
    engine_counters: dict[str, float] = {}
    tokens_per_second: float | None = None
    planned_bytes: int | None = None
    measured_bytes: int | None = None
    gpu_layers: int | None = None
    total_layers: int | None = None
    pinned: bool = False
    loaded_at: float | None = None
    last_used_at: float | None = None
    pid: int | None = None
    reason: str | None = None
    warnings: tuple[str, ...] = ()
    error_code: str | None = None
    error: str | None = None


class RequestPhase(StrEnum):
    LOADING = "loading"
    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"


class ActiveRequest(Struct, frozen=True, kw_only=True):
    id: str
    endpoint: str
    model: str
    phase: RequestPhase
    started_at: float
    client: str | None = None
    queue_position: int | None = None
    prompt_tokens: int | None = None
    prefilled_tokens: int | None = None
    completion_tokens: int = 0
    tokens_per_second: float | None = None


class RequestRecord(Struct, frozen=True, kw_only=True):
    """One finished request, as kept in the database. Never holds prompt or answer text.

    ``ttft_ms`` from request received to first non-empty token; ``tpot_ms`` = (last - first token) / (n - 1).
    """

    id: str
    created_at: float
    endpoint: str
    model: str
    engine: str | None = None
    client: str | None = None
    stream: bool = False
    status: int
    error_code: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    queue_ms: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    total_ms: float | None = None
    tokens_per_second: float | None = None
    context_length: int | None = None
    tier: str | None = None


class Live(Struct, frozen=True, kw_only=True):
    """The figures of the status strip. ``tokens_per_second`` sums what is decoding now; None when nothing runs."""

    tokens_per_second: float | None = None
    prefill_tokens_per_second: float | None = None
    last_ttft_ms: float | None = None
    last_tokens_per_second: float | None = None
    running: int = 0
    waiting: int = 0
    context_used: int | None = None
    context_length: int | None = None


class TaskPhase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Task(Struct, frozen=True, kw_only=True):
    """Something long that the service does (import, pull, load). ``done``/``total`` in ``unit``."""

    id: str
    kind: Literal["import", "pull", "load", "verify"]
    title: str
    phase: TaskPhase
    done: int = 0
    total: int | None = None
    unit: Literal["bytes", "percent"] = "bytes"
    rate_bytes_per_second: float | None = None
    eta_seconds: float | None = None
    stage: str | None = None
    result: str | None = None
    error_code: str | None = None
    error: str | None = None


class Notice(Struct, frozen=True, kw_only=True):
    """Something a person should see: ``level`` decides the colour, ``code`` is stable."""

    code: str
    level: Literal["info", "warning", "error"]
    text: str
    since: float


class Section(StrEnum):
    """The parts of State that are sent on their own when they change."""

    IDENTITY = "identity"
    DEVICES = "devices"
    INSTANCES = "instances"
    MODELS = "models"
    REQUESTS = "requests"
    LIVE = "live"
    TASKS = "tasks"
    NOTICES = "notices"
    CHATS = "chats"
    RECORDS = "records"


class State(Struct, frozen=True, kw_only=True):
    """Everything the app shows without asking. ``chats_revision`` and ``records_revision`` grow when those lists change."""

    identity: Identity
    devices: tuple[DeviceSample, ...] = ()
    instances: tuple[InstanceState, ...] = ()
    models: tuple[ModelSummary, ...] = ()
    requests: tuple[ActiveRequest, ...] = ()
    live: Live = Live()
    tasks: tuple[Task, ...] = ()
    notices: tuple[Notice, ...] = ()
    chats_revision: int = 0
    records_revision: int = 0


class StateDelta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Only the sections that changed are set (None = unchanged); coalesced by the service to at most 4 a second."""

    identity: Identity | None = None
    devices: tuple[DeviceSample, ...] | None = None
    instances: tuple[InstanceState, ...] | None = None
    models: tuple[ModelSummary, ...] | None = None
    requests: tuple[ActiveRequest, ...] | None = None
    live: Live | None = None
    tasks: tuple[Task, ...] | None = None
    notices: tuple[Notice, ...] | None = None
    chats_revision: int | None = None
    records_revision: int | None = None


# ---------------------------------------------------------------- models


class ModelSummary(Struct, frozen=True, kw_only=True):
    """A model that is here. ``name`` is what every command takes. ``owner``: whose file it is (localllm, ollama, …)."""

    name: str
    quant: str | None
    size_bytes: int
    architecture: str | None = None
    parameters: int | None = None
    trained_context_length: int | None = None
    owner: str = "localllm"
    path: str | None = None
    capabilities: tuple[str, ...] = ()
    loaded: bool = False
    added_at: float | None = None
    problem: str | None = None


class ModelList(Struct, frozen=True):
    models: tuple[ModelSummary, ...]


class ModelDetail(Struct, frozen=True, kw_only=True):
    """``facts`` are the GGUF's figures by their field names; ``template_source``: file, manifest, fallback or none."""

    summary: ModelSummary
    sha256: str | None = None
    licence: str | None = None
    source: str | None = None
    facts: dict[str, Any] = {}
    chat_template: str | None = None
    template_source: str | None = None
    stop: tuple[str, ...] = ()


class ImportRequest(Struct, frozen=True, kw_only=True):
    """``mode`` copy (default), link (hard link, same disk only) or reference (leave it where it is).

    ``chat_template``, ``stop``, ``sampling`` and ``licence`` become the model's own where its file lacks them.
    """

    path: str
    name: str | None = None
    mode: Literal["copy", "link", "reference"] = "copy"
    chat_template: str | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling | None = None
    licence: str | None = None
    source: str | None = None


class SearchHit(Struct, frozen=True, kw_only=True):
    """Something that can be pulled: ``reference`` is what ``pull`` takes. ``why`` explains a place in the ranking."""

    reference: str
    title: str
    source: str
    downloads: int | None = None
    likes: int | None = None
    gated: bool = False
    updated_at: str | None = None
    parameters: int | None = None
    licence: str | None = None
    purposes: tuple[str, ...] = ()
    why: str | None = None


class SearchResults(Struct, frozen=True, kw_only=True):
    """``problems`` says which source could not be asked."""

    hits: tuple[SearchHit, ...]
    problems: tuple[str, ...] = ()


class PullRequest(Struct, frozen=True, kw_only=True):
    """``reference`` as in ``hub/references.py``; ``quant`` None = what the planner recommends here."""

    reference: str
    quant: str | None = None


class DownloadLimit(Struct, frozen=True, kw_only=True):
    """For all downloads together, until the service ends; None = as fast as the line."""

    bytes_per_second: int | None = None


class PullPreview(Struct, frozen=True, kw_only=True):
    """What a pull would fetch, known from listings and the file's header before any weight is fetched.

    ``name`` is what the model will be called here. ``fit`` is the table of every quantisation at the source,
    ``quant_reason`` why this one was chosen. ``missing_bytes`` is what is still to be fetched; ``foreign`` says why
    stock llama.cpp cannot run the file, None when it can.
    """

    reference: str
    name: str
    origin: str
    quant: str | None
    quant_reason: str
    files: tuple[str, ...]
    size_bytes: int
    missing_bytes: int
    free_bytes: int
    reserve_bytes: int
    architecture: str | None = None
    parameters: int | None = None
    trained_context_length: int | None = None
    licence: str | None = None
    capabilities: tuple[str, ...] = ()
    foreign: str | None = None
    fit: FitTable | None = None
    here: bool = False


class Collected(Struct, frozen=True, kw_only=True):
    """Bytes that were freed: blobs without a model, and parts without a pull."""

    blob_bytes: int
    part_bytes: int


class Removed(Struct, frozen=True, kw_only=True):
    name: str
    freed_bytes: int = 0


class Verdict(StrEnum):
    """fits = all on the best device; partial = some layers on the CPU; tight = within 5 % of the budget."""

    FITS = "fits"
    TIGHT = "tight"
    PARTIAL = "partial"
    NO = "no"


class FitRow(Struct, frozen=True, kw_only=True):
    """One quant of a model against this machine. Speeds are tokens per second with a low-high range and its reason."""

    quant: str
    here: bool
    file_bytes: int
    file_bytes_source: Literal["file", "listed", "simulated", "formula"]
    weights_bytes: int
    kv_bytes: int
    compute_bytes: int
    overhead_bytes: int
    total_bytes: int
    budget_bytes: int
    verdict: Verdict
    gpu_layers: int | None
    total_layers: int
    longest_context: int | None
    decode_tokens_per_second: float | None = None
    decode_low: float | None = None
    decode_high: float | None = None
    prefill_tokens_per_second: float | None = None
    speed_reason: str | None = None
    quality: str | None = None
    quality_kld: float | None = None
    recommended: bool = False
    reason: str | None = None


class FitTable(Struct, frozen=True, kw_only=True):
    """``context_length``/``kv_type``/``parallel`` are what the rows were computed for; ``recommendation`` one sentence."""

    model: str
    device: str
    context_length: int
    kv_type_k: str
    kv_type_v: str
    parallel: int
    trained_context_length: int | None
    rows: tuple[FitRow, ...]
    recommendation: str | None = None
    warnings: tuple[str, ...] = ()


class LoadRequest(Struct, frozen=True, kw_only=True):
    """None leaves a field to the planner. ``force`` lifts a quarantine and skips the fit check.

    ``profile`` says what for, which decides what the planner chooses by itself (``core.plan.Profile``).
    """

    model: str
    engine: str | None = None
    context_length: int | None = None
    parallel: int | None = None
    kv_type: str | None = None
    gpu_layers: int | None = None
    threads: int | None = None
    keep_alive_seconds: float | None = None
    pin: bool = False
    force: bool = False
    profile: Literal["chat", "code", "agent", "long-document", "batch"] | None = None


class UnloadRequest(Struct, frozen=True, kw_only=True):
    model: str
    force: bool = False


# ---------------------------------------------------------------- history and records


class Series(Struct, frozen=True, kw_only=True):
    """``values[i]`` was read at ``History.times[i]``; None = no reading."""

    name: str
    unit: str
    values: tuple[float | None, ...]


class History(Struct, frozen=True, kw_only=True):
    times: tuple[float, ...]
    series: tuple[Series, ...]


class RequestList(Struct, frozen=True):
    records: tuple[RequestRecord, ...]


# ---------------------------------------------------------------- chats


class ChatSettings(Struct, frozen=True, kw_only=True):
    """None = the model's default. ``model`` None = the one that is loaded, or the recommended one."""

    model: str | None = None
    system: str | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None


class ChatMessage(Struct, frozen=True, kw_only=True):
    """One turn. Messages form a tree by ``parent_id``; siblings are branches (edits, regenerations).

    ``state`` streaming while the service writes it, partial when a crash or a stop cut it short.
    """

    id: str
    parent_id: str | None
    role: Literal["user", "assistant"]
    content: str
    reasoning: str | None = None
    reasoning_ms: float | None = None
    state: Literal["complete", "streaming", "partial", "failed"] = "complete"
    created_at: float
    model: str | None = None
    finish_reason: str | None = None
    error: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    ttft_ms: float | None = None
    tokens_per_second: float | None = None


class ChatSummary(Struct, frozen=True, kw_only=True):
    id: str
    title: str
    updated_at: float
    model: str | None = None
    message_count: int = 0
    match: str | None = None


class ChatList(Struct, frozen=True):
    chats: tuple[ChatSummary, ...]


class ChatDetail(Struct, frozen=True, kw_only=True):
    """``messages`` is the whole tree; ``leaf_id`` names the end of the branch that is shown."""

    summary: ChatSummary
    settings: ChatSettings
    messages: tuple[ChatMessage, ...]
    leaf_id: str | None = None


class ChatPatch(Struct, frozen=True, kw_only=True):
    """Fields that are None stay as they are (a new chat: take the defaults)."""

    title: str | None = None
    settings: ChatSettings | None = None
    leaf_id: str | None = None


class SendRequest(Struct, frozen=True, kw_only=True):
    """The user's turn is stored before anything is generated. ``parent_id`` None = the shown leaf ("" = a new root)."""

    content: str
    parent_id: str | None = None


class RegenerateRequest(Struct, frozen=True, kw_only=True):
    """A new answer beside ``message_id`` (an assistant message), or after it (a user message)."""

    message_id: str


class Sent(Struct, frozen=True, kw_only=True):
    user_message_id: str | None
    reply_id: str


class ReplyEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``kind`` so_far (``message`` is the whole message now), delta (``text``/``reasoning`` to append), status, done, error."""

    kind: Literal["so_far", "delta", "status", "done", "error"]
    message: ChatMessage | None = None
    text: str | None = None
    reasoning: str | None = None
    status: str | None = None
    code: str | None = None
    error: str | None = None
    hint: str | None = None


# ---------------------------------------------------------------- settings, doctor, shutdown


class ConfigEntry(Struct, frozen=True, kw_only=True):
    """One setting: ``source`` is default, file, environment or command line, ``where`` its file:line or variable."""

    key: str
    value: Any
    default: Any
    source: Literal["default", "file", "environment", "command line"]
    where: str | None = None
    type: str = "string"
    choices: tuple[str, ...] = ()
    help: str = ""
    needs_restart: bool = False
    secret: bool = False


class ConfigView(Struct, frozen=True, kw_only=True):
    path: str
    entries: tuple[ConfigEntry, ...]
    problems: tuple[str, ...] = ()


class ConfigChange(Struct, frozen=True, kw_only=True):
    """``value`` None = back to the default."""

    key: str
    value: Any = None


class Check(Struct, frozen=True, kw_only=True):
    name: str
    state: Literal["ok", "warning", "failed"]
    message: str
    hint: str | None = None


class DoctorReport(Struct, frozen=True, kw_only=True):
    checks: tuple[Check, ...]
    machine: Machine | None = None


class ShutdownRequest(Struct, frozen=True, kw_only=True):
    """Waits at most ``drain_seconds`` for running requests, then ends them with an error."""

    drain_seconds: float = 30.0
    restart: bool = False
