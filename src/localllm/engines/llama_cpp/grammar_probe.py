"""A process that compiles grammars and may die of it, so that the worker with the loaded model need not.

``python -m localllm.engines.llama_cpp.grammar_probe`` reads one JSON string a line (a grammar) and answers each with
``ok`` or ``bad``. ``GrammarProbe`` is the other side: it keeps such a process, starts a new one when it died, and
remembers what it was told. llama.cpp needs no vocabulary to compile a grammar.
"""

from __future__ import annotations

import hashlib
import json
import selectors
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Sequence

from localllm.core.errors import BadGrammar

PROBE_SECONDS = 3.0
REMEMBERED = 256

DEFAULT_COMMAND = (sys.executable, "-m", "localllm.engines.llama_cpp.grammar_probe")


class GrammarProbe:
    """Tells whether llama.cpp can use a grammar. Not thread-safe: the worker's command thread owns it."""

    def __init__(self, command: Sequence[str] = DEFAULT_COMMAND, *, seconds: float = PROBE_SECONDS) -> None:
        self._command = tuple(command)
        self._seconds = seconds
        self._child: subprocess.Popen[str] | None = None
        self._known: OrderedDict[str, str | None] = OrderedDict()

    def check(self, gbnf: str) -> None:
        """Return when the grammar is good.

        Raises:
            BadGrammar: llama.cpp refused it, crashed on it, or took longer than the limit.
        """
        key = hashlib.sha256(gbnf.encode()).hexdigest()
        if key not in self._known:
            self._known[key] = self._ask(gbnf)
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        problem = self._known[key]
        if problem is not None:
            raise BadGrammar(problem, param="grammar")

    def close(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, gbnf: str) -> str | None:
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(gbnf) + "\n")
            child.stdin.flush()
        except OSError:
            self.close()
            return "The grammar could not be checked: the checking process ended."
        with selectors.DefaultSelector() as waiting:
            waiting.register(child.stdout, selectors.EVENT_READ)
            if not waiting.select(self._seconds):
                self.close()
                return f"Compiling the grammar took more than {self._seconds:g} s."
        answer = child.stdout.readline().strip()
        if answer == "ok":
            return None
        if answer == "bad":
            return "llama.cpp cannot compile this grammar."
        self.close()
        return "This grammar crashes llama.cpp's compiler."

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
        return self._child


def main() -> None:
    """Compile what comes in until standard input ends."""
    from llama_cpp import llama_cpp as lib

    for line in sys.stdin:
        gbnf: str = json.loads(line)
        sampler = lib.llama_sampler_init_grammar(None, gbnf.encode(), b"root")
        if sampler:
            lib.llama_sampler_free(sampler)
        print("ok" if sampler else "bad", flush=True)


if __name__ == "__main__":
    main()
