"""Which sequences begin like a new prompt: a radix tree over the token sequences that are in the KV cache.

Edges carry runs of tokens (views of the callers' arrays, never copies), nodes the sequences that pass through. What
a sequence may really lend (it may still be computing, or its memory may not be divisible) is the scheduler's
business; the tree only knows what it holds or is about to hold.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]


class _Node:
    __slots__ = ("children", "run", "sequences")

    def __init__(self, run: Tokens, sequences: set[int]) -> None:
        self.run = run
        self.sequences = sequences
        self.children: dict[int, _Node] = {}


class PrefixTree:
    """Token sequences by number; one sequence has one path."""

    def __init__(self) -> None:
        self._root = _Node(np.empty(0, np.int32), set())
        self._tokens: dict[int, Tokens] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def put(self, sequence: int, tokens: Tokens) -> None:
        """Let ``sequence`` stand for ``tokens``, whatever it stood for before. The array may not change afterwards."""
        self.remove(sequence)
        self._tokens[sequence] = tokens
        node = self._root
        node.sequences.add(sequence)
        at = 0
        while at < len(tokens):
            child = node.children.get(int(tokens[at]))
            if child is None:
                node.children[int(tokens[at])] = _Node(tokens[at:], {sequence})
                return
            shared = common_length(child.run, tokens[at:])
            if shared < len(child.run):
                _split(child, shared)
            child.sequences.add(sequence)
            node = child
            at += shared

    def remove(self, sequence: int) -> None:
        """Forget ``sequence``; unknown ones are fine."""
        tokens = self._tokens.pop(sequence, None)
        if tokens is None:
            return
        node = self._root
        node.sequences.discard(sequence)
        at = 0
        while at < len(tokens):
            child = node.children[int(tokens[at])]
            child.sequences.discard(sequence)
            if not child.sequences:
                del node.children[int(tokens[at])]
                return
            at += len(child.run)
            node = child

    def match(self, tokens: Tokens) -> Iterator[tuple[int, int]]:
        """Every (sequence, length of the common prefix), longest first; nothing for sequences with no common token."""
        path: list[tuple[_Node, int]] = []
        node, at = self._root, 0
        while at < len(tokens):
            child = node.children.get(int(tokens[at]))
            if child is None:
                break
            shared = common_length(child.run, tokens[at:])
            at += shared
            path.append((child, at))
            node = child
            if shared < len(child.run):
                break
        seen: set[int] = set()
        for node, length in reversed(path):
            for sequence in sorted(node.sequences - seen):
                yield sequence, length
            seen |= node.sequences


def common_length(a: Tokens, b: Tokens) -> int:
    """How many tokens two arrays begin with alike."""
    size = min(len(a), len(b))
    differs = a[:size] != b[:size]
    first = int(differs.argmax()) if size else 0
    return first if size and differs[first] else size


def _split(node: _Node, length: int) -> None:
    """Cut the edge to ``node`` after ``length`` tokens; the node becomes the upper half."""
    lower = _Node(node.run[length:], set(node.sequences))
    lower.children = node.children
    node.children = {int(lower.run[0]): lower}
    node.run = node.run[:length]
