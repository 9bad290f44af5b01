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
from functools import partial
from pathlib import Path

from localllm._version import __version__
from localllm.core.config import RemoteSettings, Settings
from localllm.core.control import Identity, Section
from localllm.core.errors import LocalLLMError
from localllm.core.machine import Machine
from localllm.engines.base import Engine
from localllm.engines.ollama.engine import OllamaEngine
from localllm.engines.reaper import Reaper
from localllm.engines.remote.engine import RemoteEngine
from localllm.engines.remote.target import Target
from localllm.engines.residuals import ResidualFile
from localllm.engines.tuning import TuningFile
from localllm.hardware.assets import asset_path
from localllm.hardware.overrides import parse_overrides
from localllm.hardware.remembered import detect_here
from localllm.hardware.sampler import Sampler
from localllm.hub.curated import Curated, local_name, newest_catalogue
from localllm.hub.discover import places_from
from localllm.hub.sources.access import read_access
from localllm.hub.store import Store
from localllm.service.activity import Activity
from localllm.service.aliases import Aliases, NamedModels
from localllm.service.background import Background
from localllm.service.catalogue import Catalogue
from localllm.service.chat_store import ChatStore
from localllm.service.chats import Chats
from localllm.service.configuration import Configuration
from localllm.service.database import Database
from localllm.service.discovered import Discovered
from localllm.service.downloads import Downloads, open_downloads
from localllm.service.engine_planner import EnginePlanner
from localllm.service.events import StateHub
from localllm.service.gateway.chain import Gateway
from localllm.service.history import HistoryRing
from localllm.service.keys import Keys
from localllm.service.learning import Learning
from localllm.service.ledger import Ledger
from localllm.service.lock import ServiceLock
from localllm.service.machine import MachineReadings
from localllm.service.machine_planner import MachinePlanner
from localllm.service.manager import Manager
from localllm.service.metrics import Metrics
from localllm.service.notices import Notices
from localllm.service.pipeline import Pipeline
from localllm.service.planning import Planning
from localllm.service.records import Records
from localllm.service.remote_models import RemoteModels
from localllm.service.routed_pipeline import RoutedPipeline
from localllm.service.sampler import ServiceSampler
from localllm.service.schema import schema
from localllm.service.shutdown import Shutdown
from localllm.service.stored_responses import StoredResponses
from localllm.service.strangers import OllamaStrangers
from localllm.service.tasks import Tasks
from localllm.service.watchdog import Watchdog
from localllm.settings.identity import ensure_admin_key, read_identity, remove_identity, write_identity
from localllm.settings.load import LoadedSettings
from localllm.settings.paths import Paths

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What the port and the control namespace are built on."""

    paths: Paths
    configuration: Configuration
    identity: Identity
    admin_key: str
    background: Background
    shutdown: Shutdown
    notices: Notices
    store: Store
    catalogue: Catalogue
    aliases: Aliases
    machine: MachineReadings
    engines: Mapping[str, Engine]
    planning: Planning
    learning: Learning
    ledger: Ledger
    activity: Activity
    manager: Manager
    records: Records
    metrics: Metrics
    pipeline: Pipeline
    keys: Keys
    gateway: Gateway
    responses: StoredResponses
    chats: Chats
    tasks: Tasks
    downloads: Downloads
    history: HistoryRing
    sampler: ServiceSampler
    hub: StateHub

    @property
    def settings(self) -> Settings:
        return self.configuration.settings

    def models_changed(self) -> None:
        """Say that the store has another content now."""
        self.catalogue.forget()
        self.hub.touch(Section.MODELS)

    async def drain(self) -> None:
        """Let open requests end, as ``shutdown`` was asked to, and end the rest with an error their clients see.

        The parts close when ``open_runtime`` is left.
        """
        await self.shutdown.drain(self.manager, self.activity)
        await self.manager.close()
        self.hub.close()


@asynccontextmanager
async def open_runtime(
    paths: Paths,
    loaded: LoadedSettings,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    engines: Mapping[str, Engine] | None = None,
    planning: Planning | None = None,
    detect: Callable[[], Machine] | None = None,
    status_of: Callable[[LocalLLMError], int] = lambda error: 500,
) -> AsyncIterator[Runtime]:
    """Start every part, and stop it again on the way out. ``host`` and ``port`` are where the port is bound already.

    ``status_of`` gives the HTTP status of an error, for the request records. Tests replace ``engines``, ``planning``
    and ``detect``.

    Raises:
        AlreadyRunning: another service holds the state folder.
    """
    settings = loaded.settings
    touch = Touch()
    async with AsyncExitStack() as stack:
        # ours alone from here on
        stack.enter_context(ServiceLock(paths))
        admin_key = ensure_admin_key(paths)
        died = read_identity(paths) is not None
        reaper = Reaper(paths.log_dir / "children")  # where the engines note theirs
        reaped = await asyncio.to_thread(reaper.reap)
        if died or reaped:
            log.warning("the last service did not stop cleanly", extra={"ended_engines": reaped})

        # what is kept
        notices = Notices(touch.later(Section.NOTICES))
        database = Database(paths.database_file, schema(), notices)
        await database.open(check=died)
        stack.push_async_callback(database.close)
        records = Records(
            database, keep_days=settings.log.record_days, on_change=touch.later(Section.RECORDS)
        )
        records.forget_old()
        chat_store = ChatStore(database)
        await chat_store.mark_cut_short()

        # models
        background = await stack.enter_async_context(Background())
        store = Store(_store_dir(paths, settings))
        discovered = Discovered(
            places_from(os.environ, folders=settings.models.folders),
            paths.cache_dir / "discovered.json",
            store,
            touch.models_changed,
        )
        engines = engines if engines is not None else _engines(paths, settings, reaper)
        for engine in engines.values():
            stack.push_async_callback(engine.close)
        remotes = RemoteModels(
            (engine for engine in engines.values() if isinstance(engine, RemoteEngine)), touch.models_changed
        )
        curated = Curated(newest_catalogue(asset_path("catalogue.json"), paths.curated_file))
        catalogue = Catalogue(
            store, lambda: (*discovered.models, *remotes.models), lambda name: local_name(curated, name)
        )
        touch.catalogue = catalogue
        aliases = Aliases(paths.aliases_file, catalogue, on_change=touch.models_changed)
        background.spawn(discovered.run(), name="other stores")
        background.spawn(remotes.run(), name="remotes")
        overrides = parse_overrides(
            settings.hardware.overrides, margin_bytes=settings.engine.memory_margin_bytes
        )
        machine = MachineReadings(
            detect or partial(detect_here, cache_dir=paths.cache_dir, overrides=overrides)
        )
        learning = Learning(ResidualFile(paths.residuals_file), engines, machine)
        planning = planning if planning is not None else _planner(paths, settings, machine, learning, engines)
        ledger = Ledger()
        ollama = engines.get("ollama")
        manager = Manager(
            source=NamedModels(catalogue, aliases),
            engines=engines,
            planning=planning,
            background=background,
            ledger=ledger,
            configured_engine=settings.engine.default,
            default_model=settings.models.default,
            queue_limit=settings.server.queue_limit,
            keep_alive_s=settings.models.keep_alive_seconds,
            max_loaded=settings.models.max_loaded,
            strangers=OllamaStrangers(ollama.strangers) if isinstance(ollama, OllamaEngine) else None,
            notices=notices,
            on_change=touch.later(Section.INSTANCES, Section.MODELS),
            on_loaded=lambda planned, info: background.spawn(
                learning.learn(planned.memory, info), name="learning"
            ),
        )
        stack.push_async_callback(manager.close)

        # requests
        activity = Activity(touch.later(Section.REQUESTS, Section.LIVE))
        metrics = Metrics(manager.states, lambda: sampler.devices)
        pipeline = RoutedPipeline(
            manager,
            activity,
            (records, metrics),
            aliases=aliases,
            status_of=status_of,
            max_output_tokens=settings.server.max_output_tokens,
        )
        keys = Keys(paths.keys_file)
        gateway = Gateway(
            pipeline,
            keys,
            settings.gateway,
            resolve=manager.resolve,
            reach=aliases.reach,
            audit_folder=paths.audit_dir,
        )
        stack.push_async_callback(asyncio.to_thread, gateway.close)
        chats = Chats(chat_store, pipeline, background, touch.later(Section.CHATS))
        tasks = Tasks(background, touch.later(Section.TASKS))

        # downloads
        downloads = await stack.enter_async_context(
            open_downloads(
                store=store,
                access=read_access(os.environ, ollama=settings.downloads.ollama_registry),
                curated=curated,
                settings=settings.downloads,
                machine=machine,
                queue_file=paths.downloads_file,
                tasks=tasks,
                background=background,
                on_store_change=touch.models_changed,
            )
        )

        # what is shown
        history = HistoryRing()
        identity = Identity(
            version=__version__,
            nonce=secrets.token_hex(16),
            pid=os.getpid(),
            host=host,
            port=port,
            started_at=time.time(),
        )
        hub = StateHub(
            {
                Section.IDENTITY: lambda: identity,
                Section.DEVICES: lambda: sampler.devices,
                Section.INSTANCES: lambda: manager.states(activity.rate_of),
                Section.MODELS: lambda: catalogue.summaries(manager.loaded()),
                Section.REQUESTS: activity.requests,
                Section.LIVE: activity.live,
                Section.TASKS: tasks.all,
                Section.NOTICES: notices.all,
                Section.CHATS: lambda: chats.revision,
                Section.RECORDS: lambda: records.revision,
            },
            busy=lambda: bool(activity.open),
            background=background,
        )
        touch.hub = hub
        sampler = ServiceSampler(
            manager,
            activity,
            history,
            reader=lambda: Sampler(machine.get_in_thread()),
            watched=lambda: hub.watchers > 0,
            on_change=touch.later(Section.DEVICES, Section.INSTANCES),
        )
        hub.on_watchers = sampler.hurry
        background.spawn(sampler.run(), name="sampler")
        background.spawn(Watchdog(manager, notices).run(), name="watchdog")

        write_identity(paths, identity)
        stack.callback(remove_identity, paths)
        yield Runtime(
            paths=paths,
            configuration=Configuration(paths, loaded),
            identity=identity,
            admin_key=admin_key,
            background=background,
            shutdown=Shutdown(drain_s=settings.server.drain_seconds),
            notices=notices,
            store=store,
            catalogue=catalogue,
            aliases=aliases,
            machine=machine,
            engines=engines,
            planning=planning,
            learning=learning,
            ledger=ledger,
            activity=activity,
            manager=manager,
            records=records,
            metrics=metrics,
            pipeline=pipeline,
            keys=keys,
            gateway=gateway,
            responses=StoredResponses(),
            chats=chats,
            tasks=tasks,
            downloads=downloads,
            history=history,
            sampler=sampler,
            hub=hub,
        )


class Touch:
    """Lets parts that are built before the hub tell it of changes."""

    def __init__(self) -> None:
        self.hub: StateHub | None = None
        self.catalogue: Catalogue | None = None

    def later(self, *sections: Section) -> Callable[[], None]:
        def touch() -> None:
            if self.hub is not None:
                for section in sections:
                    self.hub.touch(section)

        return touch

    def models_changed(self) -> None:
        """The library has another content now."""
        if self.catalogue is not None:
            self.catalogue.forget()
        self.later(Section.MODELS)()


def _store_dir(paths: Paths, settings: Settings) -> Path:
    chosen = settings.models.store_dir
    return Path(chosen).expanduser() if chosen else paths.store_dir


def _planner(
    paths: Paths,
    settings: Settings,
    machine: MachineReadings,
    learning: Learning,
    engines: Mapping[str, Engine],
) -> Planning:
    ollama = engines.get("ollama")
    parallel = ollama.daemon.parallel if isinstance(ollama, OllamaEngine) else 1
    inner = MachinePlanner(settings.engine, machine, TuningFile(paths.tuning_file), learning)
    return EnginePlanner(inner, settings.engine, ollama_parallel=parallel)


def _engines(paths: Paths, settings: Settings, reaper: Reaper) -> dict[str, Engine]:
    """The engines of this build; each says by itself whether it can run here."""
    from localllm.engines.builds.shelf import Shelf
    from localllm.engines.llama_cpp.engine import LlamaCppEngine
    from localllm.engines.llama_server.engine import LlamaServerEngine

    load_s, token_s = settings.engine.load_timeout_seconds, settings.engine.token_timeout_seconds
    here: dict[str, Engine] = {
        "llama_server": LlamaServerEngine(
            log_dir=paths.log_dir,
            binary=settings.engine.llama_server_path,
            load_timeout_s=load_s,
            token_timeout_s=token_s,
        ),
        "llama_cpp": LlamaCppEngine(
            log_dir=paths.log_dir,
            load_timeout_s=load_s,
            token_timeout_s=token_s,
            reaper=reaper,
            shelf=Shelf(paths.builds_dir),
        ),
    }
    here["ollama"] = OllamaEngine(
        log_dir=paths.log_dir,
        reaper=reaper,
        url=settings.engine.ollama_url,
        binary=settings.engine.ollama_path,
        parallel=settings.engine.ollama_parallel,
        load_timeout_s=load_s,
        token_timeout_s=token_s,
    )
    remotes = [RemoteEngine(_target(name, remote)) for name, remote in settings.remotes.items()]
    return here | {remote.name: remote for remote in remotes}


def _target(name: str, remote: RemoteSettings) -> Target:
    return Target(
        name=name,
        base_url=remote.base_url,
        key=remote.key,
        key_env=remote.key_env,
        key_file=remote.key_file,
        headers=remote.headers,
        models=remote.models,
        context_length=remote.context_length,
        capabilities=remote.capabilities,
        parallel=remote.parallel,
        max_tokens_field=remote.max_tokens_field,
        connect_timeout_s=remote.connect_timeout_seconds,
        first_token_timeout_s=remote.first_token_timeout_seconds,
        token_timeout_s=remote.token_timeout_seconds,
    )
