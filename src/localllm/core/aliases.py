"""Names that outlive models: what an alias stands for, and which model a request for it goes to. Pure.

An alias has shares (a split between models, to compare two of them), rules (transparent ones, tried in order, before
the split) and fallbacks (tried in order when the chosen model cannot answer). Every earlier form is kept for a rollback.
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from localllm.core.generation import ChatPrompt, GenerationRequest, TextPrompt

MAX_HISTORY = 50
_CODE = re.compile(
    r"```|^\s*(?:def |class |import |#include|function |const |SELECT )|[;{}]\s*$", re.MULTILINE
)
_CODE_MARKS = 2

Weight = Annotated[int, Meta(ge=1, le=1000)]
Characters = Annotated[int, Meta(ge=0, le=1 << 30)]


class Share(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``weight`` counts against the sum of all shares' weights."""

    model: str
    weight: Weight = 100


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests go to ``model`` when everything holds that is said here; ``keywords``: at least one, in any case."""

    model: str
    min_characters: Characters | None = None
    max_characters: Characters | None = None
    code: bool | None = None
    tools: bool | None = None
    keywords: tuple[str, ...] = ()


class Targets(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One form of an alias. ``slow_after_seconds``: no token for so long makes the next fallback try."""

    shares: Annotated[tuple[Share, ...], Meta(min_length=1, max_length=8)]
    rules: Annotated[tuple[Rule, ...], Meta(max_length=32)] = ()
    fallback: Annotated[tuple[str, ...], Meta(max_length=8)] = ()
    slow_after_seconds: Annotated[float, Meta(gt=0, le=3600)] | None = None

    def models(self) -> tuple[str, ...]:
        """Every model named, once, in the order of first mention."""
        named = (*(s.model for s in self.shares), *(r.model for r in self.rules), *self.fallback)
        return tuple(dict.fromkeys(named))


class Version(Struct, frozen=True, kw_only=True):
    """``set_at`` is Unix seconds."""

    set_at: float
    targets: Targets


class Alias(Struct, frozen=True, kw_only=True):
    """``history`` are its earlier forms, the newest last."""

    name: str
    current: Version
    history: tuple[Version, ...] = ()

    def changed(self, targets: Targets, at: float) -> Alias:
        """With new targets; setting what is set already changes nothing."""
        if targets == self.current.targets:
            return self
        history = (*self.history, self.current)[-MAX_HISTORY:]
        return Alias(name=self.name, current=Version(set_at=at, targets=targets), history=history)

    def rolled_back(self) -> Alias | None:
        """As it was before the last change; None when there was none."""
        if not self.history:
            return None
        return Alias(name=self.name, current=self.history[-1], history=self.history[:-1])

    def heaviest(self) -> str:
        """The model that most requests go to, for who asks about the alias and not for an answer."""
        return max(self.current.targets.shares, key=lambda share: share.weight).model


class Question(Struct, frozen=True, kw_only=True):
    """What rules look at: the text a person wrote, and whether tools are offered."""

    text: str
    tools: bool = False


class Route(Struct, frozen=True, kw_only=True):
    """``models`` in the order they are tried; ``reason`` says why the first one comes first."""

    models: tuple[str, ...]
    reason: str
    slow_after_seconds: float | None = None


class AliasList(Struct, frozen=True):
    aliases: tuple[Alias, ...]


class RouteQuestion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dry run: where would this text go? ``alias`` "" means the only one there is."""

    text: str
    alias: str = ""
    tools: bool = False


def question_of(request: GenerationRequest) -> Question:
    """The last words of a person and everything before them; token prompts have no text to look at."""
    prompt = request.prompt
    if isinstance(prompt, TextPrompt):
        return Question(text=prompt.text)
    if not isinstance(prompt, ChatPrompt):
        return Question(text="")
    parts: list[str] = []
    for message in prompt.messages:
        content = message.content
        parts += [content] if isinstance(content, str) else [getattr(part, "text", "") for part in content]
    return Question(text="\n".join(parts), tools=bool(prompt.tools) and prompt.tool_choice != "none")


def route(targets: Targets, question: Question, draw: float) -> Route:
    """Where a request goes. ``draw`` in [0, 1) decides between the shares."""
    for number, rule in enumerate(targets.rules, 1):
        why = _met(rule, question)
        if why is not None:
            return _route(targets, rule.model, f"rule {number}: {why}")
    chosen = _share(targets.shares, draw)
    total = sum(share.weight for share in targets.shares)
    reason = "its only model" if len(targets.shares) == 1 else f"its share of {chosen.weight}/{total}"
    return _route(targets, chosen.model, reason)


def looks_like_code(text: str) -> bool:
    """Fences, or at least two lines that begin or end as code does."""
    return "```" in text or len(_CODE.findall(text)) >= _CODE_MARKS


def _route(targets: Targets, first: str, reason: str) -> Route:
    models = (first, *(model for model in targets.fallback if model != first))
    return Route(models=models, reason=reason, slow_after_seconds=targets.slow_after_seconds)


def _share(shares: tuple[Share, ...], draw: float) -> Share:
    left = draw * sum(share.weight for share in shares)
    for share in shares:
        left -= share.weight
        if left < 0:
            return share
    return shares[-1]


def _met(rule: Rule, question: Question) -> str | None:
    """What of the request met the rule, in words; None when something did not."""
    length = len(question.text)
    why: list[str] = []
    if rule.min_characters is not None:
        if length < rule.min_characters:
            return None
        why.append(f"{length} characters are at least {rule.min_characters}")
    if rule.max_characters is not None:
        if length > rule.max_characters:
            return None
        why.append(f"{length} characters are at most {rule.max_characters}")
    for wanted, found, name in (
        (rule.code, looks_like_code(question.text), "code"),
        (rule.tools, question.tools, "tools"),
    ):
        if wanted is not None:
            if wanted is not found:
                return None
            why.append(name if found else f"no {name}")
    if rule.keywords:
        lowered = question.text.lower()
        met = next((word for word in rule.keywords if word.lower() in lowered), None)
        if met is None:
            return None
        why.append(f"the word {met!r}")
    return ", ".join(why) or "always"
