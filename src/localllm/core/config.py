"""The settings: one typed tree, with what each means. Reading and writing files is ``localllm.settings``.

Order of precedence: typed on the command line > ``LOCALLLM_SECTION_KEY`` > ``config.toml`` > the default here.
A dotted key (``server.port``) is a path into this tree. ``Meta.description`` is what Settings and the docs show.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 50)]


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    host: Annotated[
        str, Meta(description="Address the port binds to; anything but loopback needs server.api_keys")
    ] = "127.0.0.1"
    port: Annotated[Port, Meta(description="Port of the OpenAI-compatible server; 0 takes a free one")] = (
        11500
    )
    api_keys: Annotated[
        tuple[str, ...],
        Meta(description="Keys that clients of /v1 must send; empty = none needed on loopback"),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...], Meta(description="Exact web origins allowed to call the port")
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...],
        Meta(description="Host names accepted in the Host header beside the bound address and localhost"),
    ] = ()
    queue_limit: Annotated[Count, Meta(description="Requests that may wait per model before 429")] = 32
    max_body_bytes: Annotated[Bytes, Meta(description="Largest request body without images")] = 4 << 20
    max_image_body_bytes: Annotated[Bytes, Meta(description="Largest request body with images")] = 32 << 20
    strict: Annotated[
        bool,
        Meta(
            description="Refuse unknown request fields with 400 instead of naming them in x-localllm-ignored"
        ),
    ] = False
    max_output_tokens: Annotated[
        Count | None, Meta(description="Ceiling of tokens per answer; unset = what the context leaves")
    ] = None
    reasoning_field: Annotated[
        Literal["reasoning_content", "reasoning"],
        Meta(description="Name of the field that carries the model's reasoning"),
    ] = "reasoning_content"
    sse_ping_seconds: Annotated[
        Seconds, Meta(description="Silence on a stream after which a comment frame is sent")
    ] = 15.0
    slow_reader_seconds: Annotated[
        Seconds, Meta(description="A stream whose client reads nothing for so long is cancelled")
    ] = 30.0
    drain_seconds: Annotated[Seconds, Meta(description="How long a stop waits for running requests")] = 30.0


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    store_dir: Annotated[
        str | None, Meta(description="Folder of the model store; unset = in the data folder")
    ] = None
    default: Annotated[str | None, Meta(description="Model used when none is named")] = None
    folders: Annotated[
        tuple[str, ...], Meta(description="More folders whose GGUF files are listed, where they lie")
    ] = ()
    keep_alive_seconds: Annotated[
        Seconds | None,
        Meta(description="Unload a model idle for so long; unset = keep it until the memory is needed"),
    ] = 1800.0
    max_loaded: Annotated[Count, Meta(description="Models kept loaded at once")] = 4


class DownloadSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    connections: Annotated[
        Annotated[int, Meta(ge=1, le=8)], Meta(description="Parts of one file that are fetched at once")
    ] = 4
    at_once: Annotated[Count, Meta(description="Models that are fetched at once; others wait")] = 2
    bytes_per_second: Annotated[
        Bytes | None, Meta(description="Limit of all downloads together; unset = as fast as the line")
    ] = None
    ollama_registry: Annotated[
        str, Meta(description="Address of the registry that ollama:NAME is pulled from")
    ] = "https://registry.ollama.ai"


class EngineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    default: Annotated[
        Literal["auto", "llama_server", "llama_cpp", "ollama"],
        Meta(description="Engine that runs a model when none is named"),
    ] = "auto"
    llama_server_path: Annotated[
        str | None, Meta(description="A llama-server binary to use instead of the bundled xllamacpp")
    ] = None
    ollama_url: Annotated[
        str | None, Meta(description="Address of Ollama; unset = as OLLAMA_HOST says, else its default")
    ] = None
    ollama_path: Annotated[
        str | None, Meta(description="The ollama program to start when none runs; unset = the one on PATH")
    ] = None
    ollama_parallel: Annotated[
        Count | None,
        Meta(
            description="Requests Ollama answers at once per model; unset = as OLLAMA_NUM_PARALLEL says, else 1"
        ),
    ] = None
    context_length: Annotated[
        Count | None,
        Meta(description="Context per request in tokens; unset = what fits, at most the trained length"),
    ] = None
    parallel: Annotated[
        Count | None, Meta(description="Requests a model answers at once; unset = chosen by memory")
    ] = None
    kv_type: Annotated[
        Literal["f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"],
        Meta(description="Type of the KV cache"),
    ] = "f16"
    threads: Annotated[
        Count | None, Meta(description="Threads for decoding; unset = calibrated or physical cores")
    ] = None
    gpu_layers: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)] | None,
        Meta(description="Layers on the GPU; unset = as many as fit"),
    ] = None
    memory_margin_bytes: Annotated[
        Bytes | None, Meta(description="Memory left alone on each device; unset = by kind of device")
    ] = None
    load_timeout_seconds: Annotated[
        Seconds, Meta(description="A load without progress for so long is ended")
    ] = 300.0
    token_timeout_seconds: Annotated[
        Seconds, Meta(description="A reply without a token for so long is ended and the engine restarted")
    ] = 60.0


class HardwareSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    overrides: Annotated[
        tuple[str, ...],
        Meta(
            description="Figures believed over what is detected, each DEVICE.FIELD=VALUE: cuda0.free_bytes=20GiB"
        ),
    ] = ()


class UiSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    theme: Annotated[str, Meta(description="Theme of the terminal app")] = "localllm-dark"
    low_bandwidth: Annotated[
        Literal["auto", "on", "off"], Meta(description="Fewer redraws and no animation; auto = over SSH")
    ] = "auto"
    plots: Annotated[Literal["braille", "ascii"], Meta(description="How plots are drawn")] = "braille"


class GatewaySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Policies of the port, all off by default. A named key may have its own (``localllm keys create``)."""

    requests_per_minute: Annotated[
        Count | None, Meta(description="Requests a minute of each key, and of each address without one")
    ] = None
    tokens_per_minute: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 40)] | None,
        Meta(description="Tokens a minute, prompt and answer, of each key or address"),
    ] = None
    concurrent_requests: Annotated[
        Count | None, Meta(description="Requests at once of each key or address")
    ] = None
    daily_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 40)] | None,
        Meta(description="Tokens a UTC day of each key or address; after them 429 insufficient_quota"),
    ] = None
    cache: Annotated[
        bool,
        Meta(
            description="Answer a repeated request from memory where its answer is determined (x-localllm-cache)"
        ),
    ] = False
    cache_bytes: Annotated[Bytes, Meta(description="Memory that kept answers may take")] = 64 << 20
    cache_seconds: Annotated[Seconds, Meta(description="How long an answer is kept")] = 3600.0
    mask_pii: Annotated[
        bool,
        Meta(
            description="Models see placeholders for personal data and secrets; clients get the originals back"
        ),
    ] = False
    blocked_patterns: Annotated[
        tuple[str, ...],
        Meta(description="Regular expressions that end an answer before their match, as content_filter"),
    ] = ()
    audit: Annotated[
        bool, Meta(description="Note each request, without its content, in a log that shows tampering")
    ] = False


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Level of the service's log")
    ] = "info"
    record_days: Annotated[Count, Meta(description="Days that request records are kept")] = 30


class RemoteSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One ``[remotes.NAME]``: an OpenAI-compatible API on another machine. Its models are called ``NAME/model``.

    Better than ``key`` itself are ``key_env`` (the name of an environment variable of the service) and ``key_file``.
    """

    base_url: str
    key: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    headers: dict[str, str] = {}
    models: dict[str, str] = {}
    context_length: Count | None = None
    capabilities: tuple[str, ...] | None = None
    parallel: Count = 8
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    connect_timeout_seconds: Seconds = 5.0
    first_token_timeout_seconds: Seconds = 300.0
    token_timeout_seconds: Seconds = 60.0


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole tree. Unknown keys are an error that names file, line and the nearest key."""

    server: ServerSettings = ServerSettings()
    models: ModelSettings = ModelSettings()
    downloads: DownloadSettings = DownloadSettings()
    engine: EngineSettings = EngineSettings()
    hardware: HardwareSettings = HardwareSettings()
    ui: UiSettings = UiSettings()
    gateway: GatewaySettings = GatewaySettings()
    log: LogSettings = LogSettings()
    remotes: dict[str, RemoteSettings] = {}
