"""Finding the Ollama daemon, or starting one that is installed: ours ends with us, the user's is left alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx
import msgspec

from localllm.core.errors import EngineUnavailable
from localllm.engines.base import EngineStatus, Exit
from localllm.engines.ollama.wire import Version
from localllm.engines.process import Child, ChildSpec, spawn
from localllm.engines.reaper import Reaper

DEFAULT_PORT = 11434
START_SECONDS = 20.0
PROBE_SECONDS = 2.0
END_SECONDS = 2.0
CLOSE_SECONDS = 0.5
"""It does not watch its stdin, as our own children do, so waiting longer before SIGTERM helps nobody."""
INSTALL_HINT = "Install Ollama from its site, or let another engine run the model."


def base_url(env: Mapping[str, str]) -> str:
    """Where the daemon listens: OLLAMA_HOST as Ollama reads it (host, host:port or URL), else 127.0.0.1:11434."""
    value = env.get("OLLAMA_HOST", "").strip()
    scheme, _, rest = value.rpartition("://")
    host, port = rest.rstrip("/"), ""
    if host.startswith("["):
        host, _, port = host.partition("]")
        host, port = host + "]", port.removeprefix(":")
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if host in ("", "0.0.0.0", "[::]"):
        host = "127.0.0.1"
    default = {"http": 80, "https": 443}.get(scheme, DEFAULT_PORT)
    return f"{scheme or 'http'}://{host}:{port or default}"


class Daemon:
    """One Ollama. ``binary`` None = the one on PATH; ``url`` None = as OLLAMA_HOST says.

    ``parallel``: requests it answers at once per model. It tells nobody, so this is what OLLAMA_NUM_PARALLEL says here
    or what the user set; one that we start is given it. ``environment`` is for one that we start, beside OLLAMA_*.
    """

    def __init__(
        self,
        *,
        log_dir: Path,
        reaper: Reaper,
        url: str | None = None,
        binary: str | None = None,
        parallel: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.url = (url or base_url(os.environ)).rstrip("/")
        self.parallel = parallel or _parallel(os.environ)
        self.client = httpx.AsyncClient(
            base_url=self.url,
            timeout=httpx.Timeout(30.0, connect=PROBE_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            trust_env=False,
        )
        self._log_dir = log_dir
        self._reaper = reaper
        self._environment = dict(environment or {})
        self._binary = binary
        self._child: Child | None = None
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """Of the daemon that we started; None while none of ours runs."""
        return self._child.pid if self._child is not None and self._child.alive else None

    async def version(self) -> str | None:
        """The running daemon's version, or None when nothing (or something else) answers there."""
        try:
            answer = await self.client.get("/api/version", timeout=PROBE_SECONDS)
            return (
                msgspec.json.decode(answer.content, type=Version).version
                if answer.status_code == 200
                else None
            )
        except (httpx.HTTPError, ValueError):
            return None

    async def status(self) -> EngineStatus:
        version = await self.version()
        if version is not None:
            return EngineStatus(name="ollama", available=True, version=version, reason=f"runs at {self.url}")
        binary = self._found()
        if binary is not None:
            return EngineStatus(
                name="ollama", available=True, reason=f"installed at {binary}, started when needed"
            )
        return EngineStatus(
            name="ollama", available=False, reason=f"nothing answers at {self.url}", hint=INSTALL_HINT
        )

    async def ensure(self) -> None:
        """Return when a daemon answers; starts one that is installed.

        Raises:
            EngineUnavailable: none runs, and none is installed or it does not come up.
        """
        async with self._starting:
            if await self.version() is not None:
                return
            binary = self._found()
            if binary is None:
                raise EngineUnavailable(f"Ollama does not answer at {self.url}.", hint=INSTALL_HINT)
            self._child = await spawn(
                ChildSpec(
                    name="ollama",
                    command=(binary, "serve"),
                    log_dir=self._log_dir,
                    environment=_environment(self.url)
                    | {"OLLAMA_NUM_PARALLEL": str(self.parallel)}
                    | self._environment,
                    stdout_to_log=True,
                ),
                self._reaper,
            )
            await self._wait_until_up(self._child)

    async def end(self) -> Exit:
        """How it ended: with the cause where it was our child, else only that it is gone."""
        if self._child is not None:
            await asyncio.wait({self._child.exited}, timeout=END_SECONDS)
            if self._child.exited.done():
                return self._child.exited.result()
        return Exit(expected=False, exit_code=None, cause="Ollama does not answer any more.")

    async def end_if_stuck(self) -> None:
        """Kill a daemon of ours that answers nothing, so that the next load starts another; the user's is the user's."""
        if self._child is not None and self._child.alive and await self.version() is None:
            self._child.kill("It answered nothing and was ended.")

    async def close(self) -> None:
        await self.client.aclose()
        if self._child is not None:
            await self._child.stop(CLOSE_SECONDS)

    def _found(self) -> str | None:
        return shutil.which(self._binary or "ollama")

    async def _wait_until_up(self, child: Child) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                while not child.exited.done():
                    if await self.version() is not None:
                        return
                    await asyncio.wait({child.exited}, timeout=0.1)
        child.kill("It did not come up in time.")
        ended = await asyncio.shield(child.exited)
        raise EngineUnavailable(
            f"Ollama was started but does not answer: {ended.cause}",
            hint=ended.stderr_tail[-500:] or INSTALL_HINT,
        )


def _parallel(env: Mapping[str, str]) -> int:
    """As Ollama reads OLLAMA_NUM_PARALLEL; its default is one."""
    text = env.get("OLLAMA_NUM_PARALLEL", "").strip()
    return max(1, int(text)) if text.isdecimal() else 1


def _environment(url: str) -> dict[str, str]:
    """Its own settings (OLLAMA_MODELS, OLLAMA_NUM_PARALLEL …) reach a daemon that we start; it listens where we look."""
    own = {name: value for name, value in os.environ.items() if name.startswith("OLLAMA_")}
    if sys.platform == "win32":
        own |= {name: os.environ[name] for name in ("LOCALAPPDATA",) if name in os.environ}
    return own | {"OLLAMA_HOST": url.rpartition("://")[2]}
