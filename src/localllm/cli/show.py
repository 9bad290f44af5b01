"""``localllm show``: everything known about one model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from localllm.cli.arguments import model_argument
from localllm.cli.diagnostics import say
from localllm.cli.output import Result, emit, paint, pairs
from localllm.cli.session import Remote, call, json_option, remote_options
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from localllm.core.control import ModelDetail

_FACTS = {
    "n_layer": "layers",
    "n_embd": "embedding length",
    "n_vocab": "vocabulary",
    "n_expert": "experts",
    "n_expert_used": "experts used per token",
    "sliding_window": "sliding window",
}


@click.command()
@model_argument
@click.option("--template", is_flag=True, help="Print the chat template and nothing else.")
@click.option(
    "--verify", is_flag=True, help="Read its files again and compare them with their SHA-256 first."
)
@json_option
@remote_options
def command(model: str, template: bool, verify: bool, as_json: bool, remote: Remote) -> None:
    """Everything known about MODEL: file, figures of its architecture, licence, chat template."""
    if verify:
        _verify(model, remote)
    detail = call(remote, lambda client: client.model(model))
    if template:
        click.echo(clean_text(detail.chat_template or ""))
        return
    emit(Result("model", detail, lambda: _lines(detail)), as_json=as_json)


def _verify(model: str, remote: Remote) -> None:
    """Raises ChecksumMismatch when a file is not what was stored."""
    if remote.host is not None:
        raise click.UsageError("--verify reads the files of this machine; run it over there.")
    from localllm.cli.local_store import local_store
    from localllm.cli.progress import ProgressLine

    with ProgressLine() as line:
        local_store().verify(model, lambda done, total: line.show(f"Reading {model}", done / total))
    say(f"{model} is what was stored.")


def _lines(detail: ModelDetail) -> Iterator[str]:
    from localllm.core.units import format_bytes, format_count

    summary = detail.summary
    yield paint(clean_text(summary.name), "bold")
    figures: list[tuple[str, str | None]] = [
        ("problem", summary.problem),
        ("size", format_bytes(summary.size_bytes)),
        ("quantisation", summary.quant),
        ("architecture", summary.architecture),
        ("parameters", format_count(summary.parameters) if summary.parameters else None),
        (
            "trained context",
            f"{summary.trained_context_length} tokens" if summary.trained_context_length else None,
        ),
        ("can", ", ".join(summary.capabilities) or None),
    ]
    figures += [(word, str(detail.facts[field])) for field, word in _FACTS.items() if detail.facts.get(field)]
    figures += [
        ("chat template", _template_words(detail)),
        ("stops at", ", ".join(repr(stop) for stop in detail.stop) or None),
        ("licence", detail.licence),
        ("source", detail.source),
        ("file", summary.path),
        ("sha256", detail.sha256),
        ("loaded", "yes" if summary.loaded else "no"),
    ]
    yield from pairs(figures)


def _template_words(detail: ModelDetail) -> str | None:
    if not detail.chat_template:
        return "none: prompts are completed, not answered"
    return f"from the {detail.template_source or 'file'}; see it with --template"
