"""``localllm run``: one prompt, one answer, for a person in a hurry and for scripts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from localllm.cli.arguments import model_argument
from localllm.cli.diagnostics import say
from localllm.cli.output import Result, emit, paint
from localllm.cli.session import Remote, call, json_option, remote_options
from localllm.tui.sanitise import clean_text

if TYPE_CHECKING:
    from localllm.cli.answer import Answer
    from localllm.client.client import Client

_LARGEST_INPUT_BYTES = 4 << 20


@click.command()
@model_argument
@click.argument("prompt", nargs=-1)
@click.option("--system", metavar="TEXT", help="The system prompt.")
@click.option(
    "--temperature", type=click.FloatRange(0, 2), metavar="T", help="0 = always the likeliest token."
)
@click.option("--max-tokens", type=click.IntRange(min=1), metavar="N", help="End the answer after N tokens.")
@click.option("--seed", type=int, metavar="N", help="The same seed and prompt give the same answer.")
@click.option(
    "--verbose", "-v", is_flag=True, help="Print the figures to stderr: tok/s, TTFT, tokens, memory."
)
@json_option
@remote_options
def command(
    model: str,
    prompt: tuple[str, ...],
    system: str | None,
    temperature: float | None,
    max_tokens: int | None,
    seed: int | None,
    verbose: bool,
    as_json: bool,
    remote: Remote,
) -> int | None:
    """Send PROMPT to MODEL and print the answer as it comes.

    What is piped in is put after PROMPT, so both of these work:

    \b
    localllm run gemma3-270m 'What is a GPU?'
    git diff | localllm run gemma3-270m 'Write a commit message for this diff:'
    """
    text = _prompt(prompt)
    if text is None:
        from localllm.cli.app import open_app

        return open_app(remote, model=model)
    body: dict[str, Any] = {"messages": _messages(system, text)}
    for name, value in (("temperature", temperature), ("max_tokens", max_tokens), ("seed", seed)):
        if value is not None:
            body[name] = value
    answer = call(remote, lambda client: one_answer(client, model, body, quiet=as_json))
    if as_json:
        emit(Result("answer", answer, lambda: iter(())), as_json=True)
    if answer.finish_reason == "length":
        say("The answer was cut off: it reached the limit of tokens.")
    if verbose:
        from localllm.cli.answer import sentence

        say(sentence(answer.figures))
    return None


async def one_answer(client: Client, model: str, body: dict[str, Any], *, quiet: bool = False) -> Answer:
    """Load ``model`` if it has to be, ask it, and print the answer to stdout as it comes (unless ``quiet``)."""
    from localllm.cli.answer import ask
    from localllm.cli.load import load_showing_progress
    from localllm.core.control import LoadRequest

    instance = await load_showing_progress(client, LoadRequest(model=model))
    printer = _Printer(quiet=quiet)
    try:
        return await ask(
            client, {**body, "model": instance.model}, instance, printer.write, printer.write_reasoning
        )
    finally:
        printer.end()


class _Printer:
    """Prints an answer as it comes, and ends its last line, however the answer ended.

    Reasoning goes to stderr, and only where a person reads along: it is talk, not the answer.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._last = ""
        self._thinking = False

    def write(self, text: str) -> None:
        """To a terminal only what it may be told; to a file or a pipe exactly what the model said."""
        if self._quiet:
            return
        self._end_thinking()
        self._last = text
        sys.stdout.write(clean_text(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    def write_reasoning(self, text: str) -> None:
        if not self._quiet and sys.stderr.isatty():
            self._thinking = True
            sys.stderr.write(paint(clean_text(text), "dim", sys.stderr))
            sys.stderr.flush()

    def end(self) -> None:
        self._end_thinking()
        if self._last and not self._last.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            sys.stderr.write("\n\n")
            sys.stderr.flush()


def _prompt(words: tuple[str, ...]) -> str | None:
    """What to ask: the words, what is piped in, or both; None = a person who wants a chat.

    Raises click.UsageError when there is nothing to ask.
    """
    given = " ".join(words).strip()
    piped = "" if sys.stdin.isatty() else sys.stdin.read(_LARGEST_INPUT_BYTES + 1)
    if len(piped) > _LARGEST_INPUT_BYTES:
        raise click.UsageError("What is piped in is larger than 4 MiB.")
    text = "\n\n".join(part for part in (given, piped.strip()) if part)
    if text:
        return text
    if sys.stdin.isatty() and sys.stdout.isatty():
        return None
    raise click.UsageError("There is no prompt: type one after the model, or pipe one in.")


def _messages(system: str | None, text: str) -> list[dict[str, str]]:
    said = [{"role": "user", "content": text}]
    return said if system is None else [{"role": "system", "content": system}, *said]
