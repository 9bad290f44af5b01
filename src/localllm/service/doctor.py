"""Is everything as it should be? Each check looks at one thing and says what to do when it is not well."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from localllm.core.control import Check, DoctorReport, InstancePhase, Notice
from localllm.core.errors import LocalLLMError
from localllm.core.units import format_bytes
from localllm.service.engine_choice import choose_engine
from localllm.service.runtime import Runtime

_LITTLE_DISK_BYTES = 5 << 30


async def examine(runtime: Runtime) -> DoctorReport:
    """Run every check; none of them changes anything."""
    machine = await runtime.machine.get()
    checks = [
        _configuration(runtime),
        _folder("state folder", runtime.paths.state_dir, private=True),
        _folder("model store", runtime.store.root, private=False),
        _disk(runtime.store.root),
        *_models(runtime),
        await _engine(runtime),
        *[
            Check(
                name=f"engine {name}",
                state="ok" if (s := await engine.status()).available else "warning",
                message=s.version or s.reason or "available",
                hint=s.hint,
            )
            for name, engine in runtime.engines.items()
        ],
        *[
            Check(
                name=f"loaded model {state.model}",
                state="failed",
                message=state.error or state.phase.value,
                hint=f"Try it again with: localllm load {state.model} --force",
            )
            for state in runtime.manager.states()
            if state.phase in (InstancePhase.CRASHED, InstancePhase.QUARANTINED)
        ],
        *[Check(name="hardware", state="warning", message=problem) for problem in machine.problems],
        *_notices(runtime.notices.all()),
    ]
    return DoctorReport(checks=tuple(checks), machine=machine)


def _configuration(runtime: Runtime) -> Check:
    problems = runtime.configuration.problems
    if problems:
        return Check(
            name="configuration", state="failed", message="; ".join(map(str, problems)), hint=problems[0].hint
        )
    return Check(name="configuration", state="ok", message=str(runtime.paths.config_file))


def _folder(name: str, path: Path, *, private: bool) -> Check:
    if not path.exists():
        return Check(name=name, state="ok", message=f"{path} (made when needed)")
    if not os.access(path, os.W_OK):
        return Check(name=name, state="failed", message=f"{path} cannot be written.", hint="Check its owner.")
    if private and os.name == "posix" and path.stat().st_mode & 0o077:
        return Check(
            name=name,
            state="failed",
            message=f"{path} is open to other users.",
            hint=f"Tighten it with: chmod 700 {path}",
        )
    return Check(name=name, state="ok", message=str(path))


def _disk(path: Path) -> Check:
    existing = next(p for p in (path, *path.parents) if p.exists())
    free = shutil.disk_usage(existing).free
    message = f"{format_bytes(free)} free for models"
    if free < _LITTLE_DISK_BYTES:
        return Check(
            name="disk",
            state="warning",
            message=message,
            hint="Remove a model: localllm list, localllm rm NAME",
        )
    return Check(name="disk", state="ok", message=message)


def _models(runtime: Runtime) -> list[Check]:
    models = runtime.catalogue.list()
    checks = [
        Check(name=f"model {m.name}", state="failed", message=m.problem, hint=f"localllm rm {m.name}")
        for m in models
        if m.problem
    ]
    checks += [Check(name="model store", state="failed", message=text) for text in runtime.catalogue.problems]
    if not models:
        return [
            *checks,
            Check(
                name="models", state="warning", message="No model is here yet.", hint="localllm import FILE"
            ),
        ]
    return checks or [Check(name="models", state="ok", message=f"{len(models)} here")]


async def _engine(runtime: Runtime) -> Check:
    try:
        engine, reason = await choose_engine(
            runtime.engines, asked=None, configured=runtime.settings.engine.default
        )
    except LocalLLMError as error:
        return Check(name="engine", state="failed", message=error.message, hint=error.hint)
    return Check(name="engine", state="ok", message=f"{engine.name} ({reason})")


def _notices(notices: Sequence[Notice]) -> list[Check]:
    return [
        Check(name=n.code, state="failed" if n.level == "error" else "warning", message=n.text)
        for n in notices
        if n.level != "info"
    ]
