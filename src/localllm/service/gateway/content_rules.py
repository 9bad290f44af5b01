"""Rules on what may be answered: regular expressions that end an answer before their match is shown.

What a stream has sent cannot be taken back, so what may be the beginning of a match is held until more text shows that it
is none. Of plain words that is known exactly, and hardly anything waits; of any other expression the last ``HELD_CHARS``
are held, and a longer match is found only by its beginning. An answer that is ended so finishes with ``content_filter``,
as OpenAI's do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from typing import ClassVar

from localllm.core.errors import ConfigInvalid
from localllm.core.generation import Event, Finished, FinishReason, Started, Usage
from localllm.service.gateway.lanes import Delta, Lanes
from localllm.service.gateway.policy import Events, Exchange, Proceed, Transform
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import Call

HELD_CHARS = 200
_PLAIN_WORDS = re.compile(r"[\w ,;:'-]+")


class ContentRules(Transform):
    name: ClassVar[str] = "content_rules"

    def __init__(self) -> None:
        self._ended = 0

    def wants(self, rules: Rules) -> bool:
        return bool(rules.blocked_patterns)

    def figures(self) -> dict[str, int]:
        return {"answers_ended": self._ended}

    async def around(self, exchange: Exchange, proceed: Proceed) -> Events:
        choices = exchange.call.request.n if isinstance(exchange.call, Call) else 1
        patterns = compiled(exchange.rules.blocked_patterns)
        blocked: set[int] = set()
        ended: set[int] = set()
        checked = Lanes(partial(Window, patterns, blocked))
        started = Started(0, 0, 0)
        async with aclosing(proceed()) as events:
            async for event in events:
                if isinstance(event, Started):
                    started = event
                choice = getattr(event, "choice", None)
                if choice in ended:
                    continue
                for out in checked(event):
                    yield out
                if choice in blocked and not isinstance(event, Finished):
                    ended.add(choice)
                    self._ended += 1
                    yield Finished(FinishReason.CONTENT_FILTER, choice)
                    if len(ended) == choices:
                        break
        if len(ended) == choices:
            yield _usage_so_far(started, exchange.completion_tokens)


class Window:
    """The text of one lane: what can no longer be part of a match goes on."""

    def __init__(self, patterns: Sequence[re.Pattern[str]], blocked: set[int], first: Delta) -> None:
        self._patterns = patterns
        self._blocked = blocked
        self._choice = first.choice
        self._held = ""

    def feed(self, text: str) -> str:
        self._held += text
        found = [match.start() for each in self._patterns if (match := each.search(self._held))]
        if found:
            self._blocked.add(self._choice)
            released, self._held = self._held[: min(found)], ""
            return released
        cut = min(_settled(each.pattern, self._held) for each in self._patterns)
        released, self._held = self._held[:cut], self._held[cut:]
        return released

    def finish(self) -> str:
        rest, self._held = self._held, ""
        return rest


def _settled(pattern: str, text: str) -> int:
    """How many characters of ``text``, which has no match, no match can begin in."""
    if not _PLAIN_WORDS.fullmatch(pattern):
        return max(0, len(text) - HELD_CHARS)
    begins = (
        at for at in range(max(0, len(text) - len(pattern) + 1), len(text)) if pattern.startswith(text[at:])
    )
    return next(begins, len(text))


def compiled(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    return [re.compile(pattern) for pattern in patterns]


def require_valid(patterns: Sequence[str]) -> None:
    """Raises ConfigInvalid for a setting that is no regular expression: better than a policy that fails later."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ConfigInvalid(
                f"gateway.blocked_patterns: {pattern!r} is not a regular expression: {error}."
            ) from error


def _usage_so_far(started: Started, completion_tokens: int) -> Event:
    return Usage(
        prompt_tokens=started.prompt_tokens or 0,
        cached_tokens=started.cached_tokens or 0,
        completion_tokens=completion_tokens,
    )
