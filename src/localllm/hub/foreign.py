"""Which GGUF files only Ollama can load: its own converter names some architectures and packs projectors in.

Known from the file's header, so that such a model is sent to Ollama with the reason, and not to an engine that fails.
"""

from __future__ import annotations

from localllm.core.errors import GGUFError
from localllm.core.facts import facts_from_header
from localllm.core.gguf import GGUFHeader

# Names written by Ollama's converter (convert/ in its source) that llama.cpp's LLM_ARCH_NAMES does not have.
_OLLAMA_ARCHITECTURES = frozenset({"mllama", "qwen25vl", "gptoss", "deepseekocr", "glmocr"})
_PROJECTOR_TENSORS = ("v.", "mm.", "a.")


def foreign_reason(header: GGUFHeader) -> str | None:
    """Why stock llama.cpp cannot load this file, in words; None when nothing speaks against it."""
    architecture = header.metadata.get("general.architecture")
    if architecture in _OLLAMA_ARCHITECTURES:
        return f"its architecture {architecture!r} exists only in Ollama"
    if architecture != "clip" and any(
        tensor.name.startswith(_PROJECTOR_TENSORS) for tensor in header.tensors
    ):
        return "its vision projector is packed into the model, as only Ollama reads it"
    try:
        facts_from_header(header)
    except GGUFError as error:
        return f"its header is not as llama.cpp expects it ({error.message.rstrip('.')})"
    return None
