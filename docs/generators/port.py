"""The page of the OpenAI-compatible port: what is worth knowing by hand, fields and ranges from ``core.openai``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_type_hints

from msgspec import Struct

from generators.markdown import HEAD, cell
from generators.types import fields, structs_in
from localllm.core import anthropic, ollama_api, openai, responses

_INTRODUCTION = """\
# The port

One address for OpenAI clients: `http://127.0.0.1:11500/v1` (each path also works without `/v1`). Nothing else needs to be
changed in a client; `api_key` may be anything until `server.api_keys` is set.

| method | path | |
|---|---|---|
| POST | `/v1/chat/completions` | an answer to a conversation, streamed or whole |
| POST | `/v1/completions` | a text continued, without a chat template |
| POST | `/v1/responses` | OpenAI's newer form of the same; goes on from `previous_response_id` |
| GET, DELETE | `/v1/responses/{id}` | a response that is kept: in memory, for the key that asked for it |
| POST | `/v1/messages` | Anthropic's API: tools, thinking, streaming; the key may come as `x-api-key` |
| POST | `/v1/messages/count_tokens` | how many tokens a message's prompt takes |
| POST | `/v1/embeddings` | vectors; `float` or `base64` |
| POST | `/v1/tokenize`, `/v1/detokenize` | text to tokens and back; with `messages` only their number |
| GET | `/v1/models`, `/v1/models/{id}` | what is here, with context length, capabilities, whether it is loaded |
| POST | `/api/chat`, `/api/generate`, `/api/embed` | Ollama's API, on any engine; without `/v1` only |
| GET, POST | `/api/tags`, `/api/ps`, `/api/version`, `/api/show` | what Ollama's clients ask about models |
| GET | `/openapi.json` | all of this as an OpenAPI 3.1 document |
| GET | `/health` | the service is alive; needs no key |
| GET | `/ready` | a loaded engine answers; 503 while none does |
| GET | `/metrics` | Prometheus |

## What to rely on

- **A prompt is never cut.** One that is longer than the context is a 400, `context_length_exceeded`, with both numbers. The
  header `x-localllm-context: used/limit` says how full it was.
- **Nothing is dropped in silence.** What OpenAI has and the engine cannot do is refused by name. A field that nobody knows
  is ignored and named in `x-localllm-ignored`; with `server.strict` it is a 400.
- **An answer always ends.** Without a limit it is what the context leaves, at most `server.max_output_tokens`.
- **A schema is enforced** by grammar: `json_object` and `json_schema` cannot come out as anything else.
- **Errors** have OpenAI's form, `{"error": {"message", "type", "param", "code"}}`, and [their codes](errors.md). Before the
  first byte they have their status; later they are the last event of the stream, and there is no `[DONE]`.
- **Whoever leaves is forgotten**: a client that goes away frees its place within a second.
- **Silence is commented**: a stream gets a comment frame every `server.sse_ping_seconds`.
- A model that is not loaded is loaded by the first request that names it; others wait in its queue, at most
  `server.queue_limit`, then 429 with `Retry-After`.
- **What a policy does is said**: limits in `x-ratelimit-*`, an answer from memory in `x-localllm-cache`; see
  [keys and policies](../how-to/keys-and-policies.md).
- **Anthropic's clients get Anthropic's errors**, with our code beside the type; tools that run at a vendor are skipped and
  named in `x-localllm-ignored`.
"""

_REQUESTS: tuple[tuple[str, type[Struct]], ...] = (
    ("POST /v1/chat/completions", openai.ChatRequest),
    ("POST /v1/completions", openai.CompletionRequest),
    ("POST /v1/responses", responses.ResponsesRequest),
    ("POST /v1/messages", anthropic.MessagesRequest),
    ("POST /v1/messages/count_tokens", anthropic.CountTokensRequest),
    ("POST /v1/embeddings", openai.EmbeddingRequest),
    ("POST /api/chat", ollama_api.OllamaChatRequest),
    ("POST /api/generate", ollama_api.OllamaGenerateRequest),
    ("POST /api/embed", ollama_api.OllamaEmbedRequest),
    ("POST /v1/tokenize", openai.TokenizeRequest),
    ("POST /v1/detokenize", openai.DetokenizeRequest),
)


def page() -> Iterator[str]:
    yield HEAD
    yield _INTRODUCTION
    yield "## Fields\n"
    yield "Every field may be null. Numbers outside of their range are a 400 that names the field.\n"
    for title, struct in _REQUESTS:
        yield from _table(title, struct)
    yield "## Types inside\n"
    for struct in _inner():
        yield from _table(struct.__name__, struct)


def _table(title: str, struct: type[Struct]) -> Iterator[str]:
    yield f"### {title}\n"
    words = " ".join((struct.__doc__ or "").split()).replace("``", "`").removeprefix(f"`{title}`. ")
    if words and not words.startswith(struct.__name__ + "("):
        yield words + "\n"
    config = struct.__struct_config__
    rows = [(name, kind, default == "required") for name, kind, default in fields(struct)]
    if config.tag is not None:
        rows.insert(0, (str(config.tag_field), f'`"{config.tag}"`', True))
    yield "| field | takes |\n|---|---|"
    for name, kind, needed in sorted(rows, key=lambda row: not row[2]):
        yield f"| `{name}` | {cell(kind.removesuffix(' or null'))}{' (required)' if needed else ''} |"
    yield ""


def _inner() -> list[type[Struct]]:
    """The structs that the requests are made of, each once, in the order they are met."""
    found: dict[type[Struct], None] = {}
    pending = [struct for _, struct in _REQUESTS]
    while pending:
        for hint in get_type_hints(pending.pop(0)).values():
            for inner in structs_in(hint):
                if inner not in found:
                    found[inner] = None
                    pending.append(inner)
    return list(found)
