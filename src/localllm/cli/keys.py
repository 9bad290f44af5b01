"""``localllm keys``: named keys of the port, created, listed and revoked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Column, Result, emit, table
from localllm.cli.session import Remote, call, json_option, remote_options

if TYPE_CHECKING:
    from localllm.core.gateway import KeyInfo, KeyRules

Amount = click.IntRange(1, 1 << 40)


@click.group()
def command() -> None:
    """Named keys of the port: one for each client, with rules of its own, revoked one by one.

    As soon as there is a key, the port wants one from everybody, on this machine too.
    """


@command.command("list")
@json_option
@remote_options
def list_(as_json: bool, remote: Remote) -> None:
    """The keys that there are, revoked ones too. The keys themselves are not kept."""
    found = call(remote, lambda client: client.keys()).keys
    emit(Result("keys", found, lambda: _lines(found)), as_json=as_json)
    if not found and not as_json:
        say("No keys. Make one with: localllm keys create NAME")


@command.command()
@click.argument("name")
@click.option("--requests-per-minute", type=Amount, metavar="N", help="Requests a minute.")
@click.option("--tokens-per-minute", type=Amount, metavar="N", help="Tokens a minute, prompt and answer.")
@click.option("--concurrent", "concurrent_requests", type=Amount, metavar="N", help="Requests at once.")
@click.option("--daily-tokens", type=Amount, metavar="N", help="Tokens a day (UTC).")
@click.option("--max-output-tokens", type=Amount, metavar="N", help="Tokens that one answer may have.")
@click.option("--model", "models", multiple=True, metavar="MODEL", help="Only this model; may be repeated.")
@click.option(
    "--tier", type=click.Choice(["priority", "default", "flex"]), help="The best service tier that it gets."
)
@click.option("--cache/--no-cache", default=None, help="Answer repeated requests from memory.")
@click.option("--mask-pii/--no-mask-pii", default=None, help="Hide personal data from the model.")
@click.option(
    "--block",
    "blocked_patterns",
    multiple=True,
    metavar="REGEX",
    help="End answers before this; may be repeated.",
)
@click.option("--audit/--no-audit", default=None, help="Note its requests in the audit log.")
@json_option
@remote_options
def create(name: str, as_json: bool, remote: Remote, **rules: Any) -> None:
    """Make a key named NAME and print it, this once. What is not given here is as the gateway settings say."""
    from localllm.core.gateway import KeyRequest

    wish = KeyRequest(name=name, rules=_rules(rules))
    created = call(remote, lambda client: client.create_key(wish))
    emit(Result("key", created, lambda: iter([created.key])), as_json=as_json)
    say(f"The key {name!r} is made. It is shown only now: clients send it as their API key.")


@command.command()
@click.argument("name")
@click.option("--forget", is_flag=True, help="Also take it off the list; the name can be used again.")
@json_option
@remote_options
def revoke(name: str, forget: bool, as_json: bool, remote: Remote) -> None:
    """Stop accepting the key NAME, from the next request on.

    A revoked key stays on the list, and the port stays closed to those without one; --forget the last key opens it.
    """
    removed = call(remote, lambda client: client.revoke_key(name, forget=forget))
    emit(Result("removed", removed, lambda: iter([f"{removed.name} is revoked."])), as_json=as_json)


def _rules(given: dict[str, Any]) -> KeyRules:
    """Checked by the same types that the service decodes with. Raises BadRequest."""
    import msgspec

    from localllm.core.errors import BadRequest
    from localllm.core.gateway import KeyRules

    fields = {name: value for name, value in given.items() if value is not None and value != ()}
    try:
        return msgspec.convert(fields, KeyRules)
    except msgspec.ValidationError as error:
        raise BadRequest(f"These rules cannot be used: {error}.") from error


def _lines(keys: tuple[KeyInfo, ...]) -> Iterator[str]:
    columns = [Column("name"), Column("ends with"), Column("state"), Column("rules")]
    rows = [
        (info.name, f"…{info.ends_with}", "revoked" if info.revoked_at else "active", _in_words(info.rules))
        for info in keys
    ]
    if rows:
        yield from table(columns, rows)


def _in_words(rules: KeyRules) -> str | None:
    import msgspec

    said = msgspec.to_builtins(rules)
    return ", ".join(f"{name} {_value(value)}" for name, value in said.items()) or None


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
