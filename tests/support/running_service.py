"""The real service as a process of its own, with models in its store: what the end-to-end tests talk to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from localllm.hub.demo import DEMO_NAME, DEMO_SAMPLING, DEMO_STOP, DEMO_TEMPLATE
from localllm.hub.store import Store
from localllm.settings.identity import read_identity
from localllm.settings.paths import Paths, resolve_paths

_START_S = 30.0


class RunningService(Struct, frozen=True):
    """``url`` has no path. ``model`` is the demo model's name in the store."""

    paths: Paths
    pid: int
    url: str
    model: str = DEMO_NAME


@contextmanager
def running_service(
    home: Path, demo_model: Path, settings: Mapping[str, str] | None = None
) -> Iterator[RunningService]:
    """Start ``localllm serve`` on a free port with its home in ``home``, and stop it at the end.

    ``settings`` are environment variables (``LOCALLLM_SERVER_STRICT`` …).
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("LOCALLLM_")}
    env |= {"LOCALLLM_HOME": str(home), "LOCALLLM_ENGINE_THREADS": "1", **(settings or {})}
    paths = resolve_paths(env)
    Store(paths.store_dir).import_file(
        demo_model,
        name=DEMO_NAME,
        mode="reference",
        chat_template=DEMO_TEMPLATE,
        stop=DEMO_STOP,
        sampling=DEMO_SAMPLING,
    )
    command = [sys.executable, "-m", "localllm", "serve", "--port", "0"]
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield RunningService(paths, process.pid, _address(process, paths))
    finally:
        process.terminate()
        process.wait(30)


def _address(process: subprocess.Popen[bytes], paths: Paths) -> str:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        identity = read_identity(paths)
        if identity is not None and identity.pid == process.pid:
            return f"http://{identity.host}:{identity.port}"
        if process.poll() is not None:
            raise RuntimeError(f"the service ended with exit code {process.returncode}")
        time.sleep(0.05)
    raise TimeoutError("the service did not start")
