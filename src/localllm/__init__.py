"""localllm: run language models on one machine, honestly.

Importing this package does nothing; every layer is imported where it is used.
"""

from localllm._version import __version__

__all__ = ["__version__"]
