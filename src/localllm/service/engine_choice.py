"""Which engine runs a model, with the reason, since a person will ask why."""

from __future__ import annotations

from collections.abc import Mapping

from localllm.core.errors import EngineUnavailable
from localllm.engines.base import Engine
from localllm.hub.store import StoredModel

PREFERENCE = ("llama_server", "llama_cpp", "ollama")
OLLAMA_OWNER = "ollama"
_REMOTE = "remote:"


def is_remote(model: StoredModel) -> bool:
    """Whether it runs on another machine; its owner is the engine's name then."""
    return model.owner.startswith(_REMOTE)


def only_engine(model: StoredModel) -> tuple[str, str] | None:
    """The one engine that can run this model, with the reason; None when any may."""
    if is_remote(model):
        return model.owner, "the model is there"
    if model.owner == OLLAMA_OWNER and model.problem is not None:
        return "ollama", f"only Ollama can load it ({model.problem.rstrip('.')})"
    return None


async def choose_engine(
    engines: Mapping[str, Engine], *, asked: str | None, configured: str, model: StoredModel | None = None
) -> tuple[Engine, str]:
    """The engine and one sentence why: the only one that can run ``model``, else the one asked for, else the
    configured one, else the first that is there.

    Raises:
        EngineUnavailable: the one that must run it (or every one) cannot run here; the hint says how to get it.
    """
    only = only_engine(model) if model is not None else None
    if only is not None and model is not None:
        name, reason = only
        if asked not in (None, name):
            raise EngineUnavailable(
                f"{model.name!r} cannot run on {asked}: {reason}.", hint=f"Leave out --engine, or say {name}."
            )
        return await _the_one(engines, name), reason
    wanted = asked or (None if configured == "auto" else configured)
    if wanted is not None:
        why = "asked for" if asked else "set as engine.default"
        return await _the_one(engines, wanted), why
    here = [name for name in engines if not name.startswith(_REMOTE)]
    order = [*(name for name in PREFERENCE if name in here), *(n for n in here if n not in PREFERENCE)]
    missing: list[str] = []
    for name in order:
        status = await engines[name].status()
        if status.available:
            return engines[name], f"not {'; not '.join(missing)}" if missing else "the first choice"
        missing.append(f"{name}: {status.reason or 'not available'}")
    raise EngineUnavailable(
        "No engine can run models here." + (f" ({'; '.join(missing)})" if missing else ""),
        hint="Install one with: pip install xllamacpp",
    )


async def _the_one(engines: Mapping[str, Engine], name: str) -> Engine:
    engine = engines.get(name)
    if engine is None:
        raise EngineUnavailable(
            f"There is no engine {name!r}.", hint=f"Engines here: {', '.join(engines) or 'none'}"
        )
    status = await engine.status()
    if not status.available:
        raise EngineUnavailable(
            f"The engine {name!r} cannot run here: {(status.reason or 'not available').rstrip('.')}.",
            hint=status.hint,
        )
    return engine
