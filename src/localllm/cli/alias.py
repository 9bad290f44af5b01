"""``localllm alias``: names that outlive models, and what they stand for."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, table
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from localllm.core.aliases import Alias, Rule, Share, Targets

_SHARE = re.compile(r"(?P<model>.+?)(?:=(?P<weight>\d{1,4}))?")
_CONDITION = re.compile(r"(?P<name>longer|shorter|code|tools|word)(?:=(?P<value>.*))?")


@click.group()
def command() -> None:
    """Names that stand for models, so that clients never notice a change of model."""


@command.command("list")
@json_option
@remote_options
def list_aliases(as_json: bool, remote: Remote) -> None:
    """Every alias, what it stands for and since when."""
    aliases = call(remote, lambda client: client.aliases()).aliases
    emit(Result("aliases", aliases, lambda: _lines(aliases)), as_json=as_json)
    if not aliases and not as_json:
        say("No aliases. Make one: localllm alias set NAME MODEL")


@command.command("set")
@click.argument("name")
@click.argument("models", nargs=-1, required=True, metavar="MODEL[=WEIGHT]...")
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="MODEL:CONDITION,...",
    help="Send what meets every condition to MODEL: longer=N, shorter=N, code, code=no, tools, tools=no, word=TEXT.",
)
@click.option(
    "--fallback",
    multiple=True,
    metavar="MODEL",
    help="Tried in this order when the chosen one cannot answer.",
)
@click.option(
    "--slow-after",
    type=click.FloatRange(min=0.001, max=3600),
    metavar="SECONDS",
    help="Fall back when nothing came for so long.",
)
@json_option
@remote_options
def set_alias(
    name: str,
    models: tuple[str, ...],
    rules: tuple[str, ...],
    fallback: tuple[str, ...],
    slow_after: float | None,
    as_json: bool,
    remote: Remote,
) -> None:
    """Let NAME stand for MODEL, or split its requests: localllm alias set gpt-4o small:Q8_0=90 small:Q4_K_M=10"""
    from localllm.core.aliases import Targets

    targets = Targets(
        shares=tuple(_share(text) for text in models),
        rules=tuple(_rule(text) for text in rules),
        fallback=fallback,
        slow_after_seconds=slow_after,
    )
    alias = call(remote, lambda client: client.set_alias(name, targets))
    emit(Result("alias", alias, lambda: _lines((alias,))), as_json=as_json)


@command.command("rollback")
@click.argument("name")
@json_option
@remote_options
def rollback(name: str, as_json: bool, remote: Remote) -> None:
    """Take back the last change of NAME; again, the one before it."""
    alias = call(remote, lambda client: client.roll_back_alias(name))
    emit(Result("alias", alias, lambda: _lines((alias,))), as_json=as_json)


@command.command("rm")
@click.argument("name")
@remote_options
def remove(name: str, remote: Remote) -> None:
    """Forget NAME and its history."""
    call(remote, lambda client: client.remove_alias(name))
    say(f"Removed the alias {name}.")


def _share(text: str) -> Share:
    from localllm.core.aliases import Share

    match = _SHARE.fullmatch(text)
    assert match is not None
    weight = int(match["weight"] or 100)
    if not 1 <= weight <= 1000:
        raise click.BadParameter(f"{text!r}: a weight is from 1 to 1000.")
    return Share(model=match["model"], weight=weight)


def _rule(text: str) -> Rule:
    """``MODEL:CONDITION,…``; a model's own colon (its tag) is kept, as the last colon before a condition divides."""
    from localllm.core.aliases import Rule

    model, _, conditions = text.rpartition(":")
    lengths: dict[str, int] = {}
    kinds: dict[str, bool] = {}
    words: list[str] = []
    for part in conditions.split(","):
        match = _CONDITION.fullmatch(part.strip())
        value = (match["value"] or "") if match else ""
        if match is None or not model:
            raise click.BadParameter(f"{text!r} is no rule; write MODEL:longer=2000,code")
        if match["name"] in ("longer", "shorter"):
            if not value.isdecimal():
                raise click.BadParameter(f"{part!r} needs a number of characters.")
            lengths[match["name"]] = int(value)
        elif match["name"] == "word":
            words.append(value)
        else:
            kinds[match["name"]] = value != "no"
    return Rule(
        model=model,
        min_characters=lengths.get("longer"),
        max_characters=lengths.get("shorter"),
        code=kinds.get("code"),
        tools=kinds.get("tools"),
        keywords=tuple(words),
    )


def _lines(aliases: tuple[Alias, ...]) -> Iterator[str]:
    columns = (Column("alias"), Column("stands for"), Column("since"), Column("earlier", right=True))
    rows = [
        (
            alias.name,
            _told(alias.current.targets),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(alias.current.set_at)),
            str(len(alias.history)),
        )
        for alias in aliases
    ]
    return table(columns, rows) if rows else iter(())


def _told(targets: Targets) -> str:
    shares = targets.shares
    text = shares[0].model if len(shares) == 1 else ", ".join(f"{s.model} {s.weight}" for s in shares)
    if targets.rules:
        text += f"; {len(targets.rules)} rule{'s' if len(targets.rules) > 1 else ''}"
    if targets.fallback:
        text += f"; else {', '.join(targets.fallback)}"
    return text
