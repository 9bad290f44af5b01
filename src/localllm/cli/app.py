"""Opening the terminal app: the one place where the command line hands the terminal over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from localllm.cli.session import Remote, call

if TYPE_CHECKING:
    from localllm.client.client import Client


def open_app(remote: Remote, *, model: str | None = None, low_bandwidth: bool | None = None) -> int:
    """Run the terminal app until it is left; its exit code. ``model`` begins a chat with that model first.

    What can be known to be wrong before the screen is taken (no such model, no such host) is an error first.
    """
    from localllm.tui.main import run_app

    if model is not None:
        call(remote, lambda client: _begin_chat(client, model))
    return run_app(host=remote.host, key=remote.key, low_bandwidth=low_bandwidth)


async def _begin_chat(client: Client, model: str) -> None:
    """A new chat with ``model``, unless the newest one is with it and empty still."""
    from localllm.core.control import ChatPatch, ChatSettings

    name = (await client.model(model)).summary.name
    newest = (await client.chats()).chats[:1]
    if newest and newest[0].model == name and newest[0].message_count == 0:
        return
    await client.create_chat(ChatPatch(settings=ChatSettings(model=name)))
