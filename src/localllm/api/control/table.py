"""Which control path is answered by what. The key is checked before routing (``api/keys.py``), for all of them."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from localllm.api.control.aliases import AliasRoutes
from localllm.api.control.chats import ChatRoutes
from localllm.api.control.downloads import DownloadRoutes
from localllm.api.control.gateway import GatewayRoutes
from localllm.api.control.models import ModelRoutes
from localllm.api.control.service import ServiceRoutes
from localllm.service.runtime import Runtime


def routes(runtime: Runtime) -> list[BaseRoute]:
    """Every route of ``core/control.py``."""
    service, models, chats = ServiceRoutes(runtime), ModelRoutes(runtime), ChatRoutes(runtime)
    downloads, gateway = DownloadRoutes(runtime), GatewayRoutes(runtime)
    aliases = AliasRoutes(runtime)
    table = [
        ("GET", "/identity", service.identity),
        ("GET", "/state", service.state),
        ("GET", "/events", service.events),
        ("GET", "/hardware", service.hardware),
        ("GET", "/history", service.history),
        ("GET", "/requests", service.requests),
        ("GET", "/requests/{id}", service.request),
        ("GET", "/config", service.config),
        ("PUT", "/config", service.set_config),
        ("GET", "/doctor", service.doctor),
        ("GET", "/logs", service.logs),
        ("GET", "/keys", gateway.keys),
        ("POST", "/keys", gateway.create_key),
        ("DELETE", "/keys/{name}", gateway.revoke_key),
        ("GET", "/gateway", gateway.gateway),
        ("GET", "/audit", gateway.audit),
        ("GET", "/aliases", aliases.list),
        ("PUT", "/aliases/{name:path}", aliases.set),
        ("DELETE", "/aliases/{name:path}", aliases.remove),
        ("POST", "/rollback/{name:path}", aliases.rollback),
        ("POST", "/route", aliases.route),
        ("POST", "/shutdown", service.shutdown),
        ("GET", "/models", models.list),
        ("GET", "/models/{name:path}", models.detail),
        ("DELETE", "/models/{name:path}", models.remove),
        ("POST", "/import", models.import_model),
        ("GET", "/search", downloads.search),
        ("POST", "/preview", downloads.preview),
        ("POST", "/pull", downloads.pull),
        ("PUT", "/downloads/limit", downloads.limit),
        ("POST", "/downloads/{id}/{action}", downloads.act),
        ("POST", "/verify/{name:path}", downloads.verify),
        ("POST", "/collect", downloads.collect),
        ("GET", "/fit", models.fit),
        ("POST", "/load", models.load),
        ("POST", "/unload", models.unload),
        ("GET", "/chats", chats.list),
        ("POST", "/chats", chats.create),
        ("GET", "/chats/{id}", chats.detail),
        ("PATCH", "/chats/{id}", chats.patch),
        ("DELETE", "/chats/{id}", chats.delete),
        ("POST", "/chats/{id}/send", chats.send),
        ("POST", "/chats/{id}/regenerate", chats.regenerate),
        ("POST", "/chats/{id}/stop", chats.stop),
        ("GET", "/chats/{id}/stream", chats.watch),
        ("GET", "/chats/{id}/export", chats.export),
    ]
    return [Route(f"/localllm{path}", endpoint, methods=[method]) for method, path, endpoint in table]
