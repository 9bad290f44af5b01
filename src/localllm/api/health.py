"""``/health`` (the service is alive), ``/ready`` (a loaded model answers) and ``/metrics`` (Prometheus)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localllm.service.runtime import Runtime


class Health:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """200 with the models that answered a ping just now; 503 when none did."""
        models = sorted(set(await self._runtime.manager.healthy()))
        status = "ready" if models else "not ready"
        return JSONResponse({"status": status, "models": models}, status_code=200 if models else 503)

    async def metrics(self, request: Request) -> Response:
        """What Prometheus scrapes; the engines are asked at each scrape, since nobody else may be watching."""
        await self._runtime.sampler.read_engines()
        return Response(self._runtime.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")
