"""The how-to for clients, from the snippets that the Server screen copies."""

from __future__ import annotations

from collections.abc import Iterator

from generators.markdown import HEAD
from localllm.core.config import ServerSettings
from localllm.tui.snippets import snippets

_TITLES = {
    "curl": "curl",
    "python": "Python, with the package openai",
    "js": "JavaScript, with the package openai",
    "env": "Anything that reads OpenAI's variables",
    "aider": "aider",
    "continue": "Continue",
    "llm": "llm",
}


def page() -> Iterator[str]:
    yield HEAD
    yield "# Use it from other programs\n"
    yield "Any client that lets you set a base URL works. The Server screen (`4`) has these ready to copy, with your own"
    yield "address and model; what the port promises is in [the reference](../reference/port.md).\n"
    yield "A key is only needed when `server.api_keys` is set, see [Serve it to others](serve.md). Then replace `none`.\n"
    for snippet in snippets(f"http://127.0.0.1:{ServerSettings().port}/v1", "gemma3-270m", needs_key=False):
        yield f"## {_TITLES.get(snippet.title, snippet.title)}\n"
        yield f"```{snippet.language}\n{snippet.text}\n```\n"
    yield "## What clients trip over\n"
    yield "- **The model's name** is what `localllm list` shows; without the quantisation it is enough when there is one."
    yield "- **A model without a chat template** completes texts and does not chat: `/v1/completions`, or import it with"
    yield "  `--template`."
    yield "- **The first request waits** while the model loads. Give the client a generous timeout, or `localllm load` first."
    yield "- **A 400 `context_length_exceeded`** has both numbers. Load the model with more: `localllm load MODEL --context 32k`."
