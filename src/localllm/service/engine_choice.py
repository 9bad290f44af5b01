"""Which engine runs a model, with the reason, since a person will ask why."""

from __future__ import annotations

from collections.abc import Mapping

from localllm.core.errors import EngineUnavailable
from localllm.engines.base import Engine

PREFERENCE = ("llama_server", "llama_cpp", "ollama")


async def choose_engine(
    engines: Mapping[str, Engine], *, asked: str | None, configured: str
) -> tuple[Engine, str]:
    """The engine and one sentence why: the one asked for, else the configured one, else the first that is there.

    Raises:
        EngineUnavailable: the one asked for (or every one) cannot run here; the hint says how to get it.
    """
    wanted = asked or (None if configured == "auto" else configured)
    if wanted is not None:
        why = "asked for" if asked else "set as engine.default"
        return await _the_one(engines, wanted), why
    order = [*(name for name in PREFERENCE if name in engines), *(n for n in engines if n not in PREFERENCE)]
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
            f"The engine {name!r} cannot run here: {status.reason or 'not available'}.", hint=status.hint
        )
    return engine
