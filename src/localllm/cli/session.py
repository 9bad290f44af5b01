"""How a verb reaches the service: which one, with which key, and one call from synchronous click to the async client.

The client and everything under it is imported inside, so that a verb's ``--help`` stays fast.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from localllm.client.client import Client

T = TypeVar("T")


@dataclass(frozen=True)
class Remote:
    """Which service: ``host`` None = the one on this machine, started when it is not running."""

    host: str | None = None
    key: str | None = None


def remote_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--host`` and ``--key``; the command gets them as ``remote``, with those before the verb as defaults."""

    @click.option(
        "--host",
        metavar="HOST[:PORT]",
        envvar="LOCALLLM_HOST",
        help="A service on another machine (or LOCALLLM_HOST).",
    )
    @click.option(
        "--key",
        metavar="KEY",
        envvar="LOCALLLM_KEY",
        help="The admin key of that service (or LOCALLLM_KEY, which other users cannot see).",
    )
    @functools.wraps(function)
    def wrapper(*args: Any, host: str | None, key: str | None, **kwargs: Any) -> Any:
        outer = click.get_current_context().find_object(Remote) or Remote()
        return function(*args, remote=Remote(host or outer.host, key or outer.key), **kwargs)

    return wrapper


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def call(remote: Remote, work: Callable[[Client], Awaitable[T]], *, start: bool = True) -> T:
    """Connect, do ``work``, disconnect. ``start`` brings up a local service that is not running.

    Raises what the client raises: NotRunning, Unauthorized, VersionMismatch and whatever the service answers; and
    ConfigError when a local service did not start because of its settings.
    """

    import asyncio  # 25 ms that no --help needs to wait for

    from localllm.core.errors import NotRunning
    from localllm.settings.load import load_settings
    from localllm.settings.paths import resolve_paths

    paths = resolve_paths()

    async def session() -> T:
        from localllm.client.connect import connect

        client = await connect(paths, host=remote.host, key=remote.key, start=start)
        async with client:
            return await work(client)

    try:
        return asyncio.run(session())
    except NotRunning:
        if remote.host is None and start:
            load_settings(paths)  # settings it cannot start with are the better error
        raise
