"""The service's parts and how they are put together: read it top to bottom, as they start; they stop in reverse.

Everything that lives as long as the service is made here once and handed down. Nothing else in the package builds one
of these, and nothing finds them by any other way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from localllm._version import __version__
from localllm.core.config import Settings
from localllm.core.control import Identity
from localllm.core.errors import LocalLLMError
from localllm.engines.base import Engine
from localllm.engines.reaper import Reaper
from localllm.hub.store import Store
from localllm.service.activity import Activity
from localllm.service.background import Background
from localllm.service.catalogue import Catalogue
from localllm.service.ledger import Ledger
from localllm.service.lock import ServiceLock
from localllm.service.manager import Manager
from localllm.service.pipeline import Pipeline
from localllm.service.planning import Planning
from localllm.settings.identity import ensure_admin_key, remove_identity, write_identity
from localllm.settings.load import LoadedSettings
from localllm.settings.paths import Paths

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What the port and the control namespace are built on."""

    paths: Paths
    loaded_settings: LoadedSettings
    identity: Identity
    admin_key: str
    background: Background
    store: Store
    catalogue: Catalogue
    engines: Mapping[str, Engine]
    planning: Planning
    ledger: Ledger
    activity: Activity
    manager: Manager
    pipeline: Pipeline

    @property
    def settings(self) -> Settings:
        return self.loaded_settings.settings


@asynccontextmanager
async def open_runtime(
    paths: Paths,
    loaded: LoadedSettings,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    engines: Mapping[str, Engine] | None = None,
    planning: Planning | None = None,
    status_of: Callable[[LocalLLMError], int] = lambda error: 500,
) -> AsyncIterator[Runtime]:
    """Start every part, and stop it again on the way out. ``host`` and ``port`` are where the port is bound already.

    ``status_of`` gives the HTTP status of an error, for the request records. ``engines`` and ``planning`` are replaced
    in tests.

    Raises:
        AlreadyRunning: another service holds the state folder.
    """
    settings = loaded.settings
    async with AsyncExitStack() as stack:
        stack.enter_context(ServiceLock(paths))
        admin_key = ensure_admin_key(paths)
        reaped = await asyncio.to_thread(Reaper(paths.state_dir / "children").reap)
        if reaped:
            log.warning("ended engines that an earlier service left behind", extra={"pids": reaped})
        background = await stack.enter_async_context(Background())
        store = Store(_store_dir(paths, settings))
        catalogue = Catalogue(store)
        ledger = Ledger()
        activity = Activity()
        planning = planning if planning is not None else _machine_planner(settings)
        engines = engines if engines is not None else _engines(paths, settings)
        for engine in engines.values():
            stack.push_async_callback(engine.close)
        manager = Manager(
            source=catalogue,
            engines=engines,
            planning=planning,
            background=background,
            ledger=ledger,
            configured_engine=settings.engine.default,
            default_model=settings.models.default,
            queue_limit=settings.server.queue_limit,
            keep_alive_s=settings.models.keep_alive_seconds,
            max_loaded=settings.models.max_loaded,
        )
        stack.push_async_callback(manager.close)
        pipeline = Pipeline(
            manager, activity, status_of=status_of, max_output_tokens=settings.server.max_output_tokens
        )
        identity = Identity(
            version=__version__,
            nonce=secrets.token_hex(16),
            pid=os.getpid(),
            host=host,
            port=port,
            started_at=time.time(),
        )
        write_identity(paths, identity)
        stack.callback(remove_identity, paths)
        yield Runtime(
            paths=paths,
            loaded_settings=loaded,
            identity=identity,
            admin_key=admin_key,
            background=background,
            store=store,
            catalogue=catalogue,
            engines=engines,
            planning=planning,
            ledger=ledger,
            activity=activity,
            manager=manager,
            pipeline=pipeline,
        )


def _store_dir(paths: Paths, settings: Settings) -> Path:
    chosen = settings.models.store_dir
    return Path(chosen).expanduser() if chosen else paths.store_dir


def _machine_planner(settings: Settings) -> Planning:
    from localllm.service.machine_planner import MachinePlanner

    return MachinePlanner(settings.engine)


def _engines(paths: Paths, settings: Settings) -> dict[str, Engine]:
    """The engines of this build; each says by itself whether it can run here."""
    from localllm.engines.llama_cpp.engine import LlamaCppEngine
    from localllm.engines.llama_server.engine import LlamaServerEngine

    timeouts = {
        "load_timeout_s": settings.engine.load_timeout_seconds,
        "token_timeout_s": settings.engine.token_timeout_seconds,
    }
    return {
        "llama_server": LlamaServerEngine(
            log_dir=paths.log_dir, binary=settings.engine.llama_server_path, **timeouts
        ),
        "llama_cpp": LlamaCppEngine(log_dir=paths.log_dir, **timeouts),
    }
