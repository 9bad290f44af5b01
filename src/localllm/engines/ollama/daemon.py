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

from localllm.core.errors import EngineUnavailable
from localllm.engines.base import EngineStatus
from localllm.engines.ollama.wire import Version
from localllm.engines.process import Child, ChildSpec, spawn
from localllm.engines.reaper import Reaper

DEFAULT_PORT = 11434
START_SECONDS = 20.0
PROBE_SECONDS = 2.0
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
    """One Ollama. ``binary`` None = the one on PATH; ``url`` None = as OLLAMA_HOST says."""

    def __init__(
        self, *, log_dir: Path, state_dir: Path, url: str | None = None, binary: str | None = None
    ) -> None:
        self.url = url or base_url(os.environ)
        self.client = httpx.AsyncClient(
            base_url=self.url,
            timeout=httpx.Timeout(30.0, connect=PROBE_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            trust_env=False,
        )
        self._log_dir = log_dir
        self._reaper = Reaper(state_dir / "children")
        self._binary = binary
        self._child: Child | None = None
        self._starting = asyncio.Lock()

    @property
    def started_by_us(self) -> bool:
        return self._child is not None and self._child.alive

    async def version(self) -> str | None:
        """The running daemon's version, or None when nothing (or something else) answers there."""
        try:
            answer = await self.client.get("/api/version", timeout=PROBE_SECONDS)
            import msgspec

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
                    environment=_environment(self.url),
                ),
                self._reaper,
            )
            await self._wait_until_up(self._child)

    async def close(self) -> None:
        await self.client.aclose()
        if self._child is not None:
            await self._child.stop()

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


def _environment(url: str) -> dict[str, str]:
    """Its own settings (OLLAMA_MODELS, OLLAMA_NUM_PARALLEL …) reach a daemon that we start; it listens where we look."""
    own = {name: value for name, value in os.environ.items() if name.startswith("OLLAMA_")}
    if sys.platform == "win32":
        own |= {name: os.environ[name] for name in ("LOCALAPPDATA",) if name in os.environ}
    return own | {"OLLAMA_HOST": url.rpartition("://")[2]}
