"""Routes about models: what is here, what fits, import and removal, loading and unloading."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from localllm.api.control.wire import answer, flag, number, read, stream
from localllm.api.errors import error_object
from localllm.core.control import (
    ImportRequest,
    LoadRequest,
    ModelDetail,
    ModelList,
    Removed,
    UnloadRequest,
)
from localllm.core.errors import BadRequest, Conflict, LocalLLMError
from localllm.core.launch import KV_CACHE_TYPES
from localllm.service.fit import fit_of
from localllm.service.imports import start_import
from localllm.service.runtime import Runtime
from localllm.service.tasks import Progress

_SIGN_OF_LIFE_S = 15.0
_FRAME_S = 0.1


class ModelRoutes:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def list(self, request: Request) -> Response:
        manager = self._runtime.manager
        return answer(ModelList(self._runtime.catalogue.summaries(manager.loaded())))

    async def detail(self, request: Request) -> Response:
        runtime = self._runtime
        model = runtime.manager.resolve(request.path_params["name"])
        problem = model.problem
        try:
            facts = msgspec.to_builtins(await runtime.planning.facts(model))
        except LocalLLMError as error:
            facts, problem = {}, error.message
        summary = model.summary(loaded=runtime.manager.is_loaded(model.name))
        own_template = facts.pop("chat_template", None)
        facts.pop("tensors", None)
        return answer(
            ModelDetail(
                summary=msgspec.structs.replace(summary, problem=problem),
                sha256=model.sha256,
                licence=model.licence,
                source=model.source,
                facts=facts,
                chat_template=model.chat_template or own_template,
                template_source="manifest" if model.chat_template else "file" if own_template else "none",
                stop=model.stop,
            )
        )

    async def remove(self, request: Request) -> Response:
        runtime = self._runtime
        model = runtime.manager.resolve(request.path_params["name"])
        if model.owner != "localllm":
            raise Conflict(
                f"{model.name} belongs to {model.owner}; localllm deletes nothing in another tool's store.",
                hint="Remove it there.",
                param="model",
            )
        if flag(request, "force"):
            if runtime.manager.is_loaded(model.name):
                await runtime.manager.unload(model.name, force=True)
        else:
            runtime.manager.refuse_removal(model.name)
        freed = await asyncio.to_thread(runtime.store.remove, model.name)
        runtime.models_changed()
        return answer(Removed(name=model.name, freed_bytes=freed))

    async def import_model(self, request: Request) -> Response:
        wish = await read(request, ImportRequest)
        runtime = self._runtime
        return answer(start_import(runtime.tasks, runtime.store, wish, runtime.models_changed))

    async def fit(self, request: Request) -> Response:
        kv_type = request.query_params.get("kv_type") or self._runtime.settings.engine.kv_type
        if kv_type not in KV_CACHE_TYPES:
            raise BadRequest(f"kv_type must be one of {', '.join(KV_CACHE_TYPES)}.", param="kv_type")
        table = await fit_of(
            self._runtime,
            request.query_params.get("model", ""),
            context_length=number(request, "context_length", int, None, 1, 100_000_000),
            kv_type=kv_type,
            parallel=number(request, "parallel", int, 1, 1, 4096) or 1,
        )
        return answer(table)

    async def load(self, request: Request) -> Response:
        wish = await read(request, LoadRequest)
        if not flag(request, "stream"):
            return answer(await self._runtime.manager.load(wish))
        name = self._runtime.manager.resolve(wish.model).name
        return stream(self._load_events(name, wish))

    async def unload(self, request: Request) -> Response:
        wish = await read(request, UnloadRequest)
        return answer(await self._runtime.manager.unload(wish.model, force=wish.force))

    async def _load_events(
        self, name: str, wish: LoadRequest
    ) -> AsyncGenerator[tuple[str, object] | None, None]:
        """``task`` events while it loads, then one ``instance`` (InstanceState) or ``error`` (the error object).

        The load goes on when the client leaves: it may be what others wait for.
        """
        runtime = self._runtime
        end: asyncio.Queue[tuple[str, object]] = asyncio.Queue()

        async def work(progress: Progress) -> str:
            try:
                state = await runtime.manager.load(
                    wish,
                    lambda step: progress.report(round((step.fraction or 0) * 100), 100, stage=step.stage),
                )
            except LocalLLMError as error:
                end.put_nowait(("error", error_object(error)))
                raise
            end.put_nowait(("instance", state))
            return name

        task = runtime.tasks.start("load", name, work, unit="percent")
        yield "task", task
        shown, shown_at = task, time.monotonic()
        while True:
            try:
                async with asyncio.timeout(_FRAME_S):
                    last = await end.get()
            except TimeoutError:
                last = None
            if last is not None:
                yield last
                return
            now = runtime.tasks.get(task.id)
            if now != shown:
                shown, shown_at = now, time.monotonic()
                yield "task", now
            elif time.monotonic() - shown_at >= _SIGN_OF_LIFE_S:
                shown_at = time.monotonic()
                yield None
