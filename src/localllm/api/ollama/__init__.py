"""``/api/*``: the reading and answering side of Ollama's own API. Models are pulled and removed in our own ways."""

from localllm.api.ollama.table import ollama_routes

__all__ = ["ollama_routes"]
