"""Output parsers: from what a model family writes to text, reasoning and tool-call events, streamed.

``family_of`` picks the family by what the chat template itself writes; ``make_parser`` builds a fresh parser for one
answer. Pure text in, events out: no model, no tokens.
"""

from localllm.engines.llama_cpp.parsers.base import OutputParser
from localllm.engines.llama_cpp.parsers.families import Family, family_of, make_parser

__all__ = ["Family", "OutputParser", "family_of", "make_parser"]
