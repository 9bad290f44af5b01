"""Judges a finished answer by the part of its JSON Schema that the grammar could not hold.

A choice that was cut off at its token limit is not judged: it is unfinished, and says so by its finish reason.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from localllm.api.v1.schema_check import violation
from localllm.core.errors import GenerationFailed
from localllm.core.generation import Event, Finished, FinishReason, TextDelta


class SchemaMismatch(GenerationFailed):
    """The model's answer breaks a rule of the schema that could only be checked at the end."""

    code = "schema_mismatch"


class AnswerGuard:
    """Call it with each event. Raises SchemaMismatch at the end of a choice that breaks the schema."""

    def __init__(self, schema: Mapping[str, object], choices: int) -> None:
        self._schema = schema
        self._texts: list[list[str]] = [[] for _ in range(choices)]

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._texts[event.choice].append(event.text)
        elif isinstance(event, Finished) and event.reason is FinishReason.STOP:
            self._judge("".join(self._texts[event.choice]), event.choice)

    def _judge(self, text: str, choice: int) -> None:
        try:
            problem = violation(msgspec.json.decode(text), self._schema)
        except (msgspec.DecodeError, RecursionError):
            problem = "it is not valid JSON"
        if problem is not None:
            raise SchemaMismatch(
                f"The answer does not follow the JSON Schema: {problem}.",
                hint="Ask again, or simplify the schema: this rule can be checked but not enforced.",
                param="response_format",
                details={"choice": choice, "problem": problem},
            )
