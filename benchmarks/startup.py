"""What localllm costs before it does anything: the time to start, and what it takes when it idles.

    python -m benchmarks.startup [--json] [--runs N] [--idle-seconds S]

The service runs in a home of its own without a model; the app runs on a pseudo-terminal of 80×24. Times count from the
start of the process, over interleaved runs: ``first_frame_ms`` to the last tab of the first frame, ``first_state_ms``
to the service's address in it. Processor time is what the kernel charged the process over the idle seconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from statistics import median

import psutil
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.support import Figure, Goal, figure, print_figures
from localllm.core.control import Identity
from localllm.settings.identity import read_identity
from localllm.settings.paths import resolve_paths
from tests.support.pty_process import PtyProcess

FRAME_SECONDS = 20.0
SETTLE_SECONDS = 4.0
MEGABYTE = 1_000_000


@dataclass
class Readings:
    """Every single measurement, in the unit of its name."""

    version_ms: list[float] = field(default_factory=list)
    first_frame_ms: list[float] = field(default_factory=list)
    first_state_ms: list[float] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--runs", type=int, default=9, help="interleaved starts of each kind")
    parser.add_argument("--idle-seconds", type=float, default=30.0, help="how long to watch an idle process")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="localllm-startup-") as home:
        env = quiet_environment(Path(home))
        with running_service(env) as service:
            readings = start_often(env, service, options.runs)
            idle = watch_idle(env, service, options.idle_seconds)
    packages = base_packages()
    runs = {
        "starts": readings.__dict__,
        "idle_seconds": options.idle_seconds,
        "base_packages": sorted(packages),
    }
    print_figures(figures(readings, idle, len(packages)), runs, as_json=options.json)
    return 0


def figures(readings: Readings, idle: Mapping[str, float], packages: int) -> list[Figure]:
    return [
        figure("version_ms", median(readings.version_ms), "ms", Goal("<=", 120)),
        figure("first_frame_ms", median(readings.first_frame_ms), "ms", Goal("<=", 400)),
        figure("first_state_ms", median(readings.first_state_ms), "ms"),
        figure("idle_app_cpu_percent", idle["app_cpu_percent"], "% of a core", Goal("<=", 1)),
        figure("idle_app_bytes_per_second", idle["app_bytes_per_second"], "bytes/s", Goal("<=", 1000)),
        figure("idle_service_cpu_percent", idle["service_cpu_percent"], "% of a core", Goal("<=", 0.5)),
        figure("watched_service_cpu_percent", idle["watched_service_cpu_percent"], "% of a core"),
        figure("service_rss_mb", idle["service_rss_mb"], "MB", Goal("<=", 90)),
        figure("base_packages", packages, "packages", Goal("<=", 45)),
    ]


def quiet_environment(home: Path) -> dict[str, str]:
    """A home of its own, a free port, a plain terminal; nothing of the caller's settings."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("LOCALLLM_", "SSH_", "TEXTUAL", "NO_COLOR"))
    }
    return kept | {
        "LOCALLLM_HOME": str(home),
        "LOCALLLM_SERVER_PORT": "0",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
    }


def command(*arguments: str) -> list[str]:
    """The installed ``localllm``, as a person runs it."""
    script = Path(sys.executable).with_name("localllm")
    return [str(script), *arguments] if script.exists() else [sys.executable, "-m", "localllm", *arguments]


@contextmanager
def running_service(env: Mapping[str, str]) -> Iterator[Identity]:
    """A service of our own, stopped at the end."""
    subprocess.run(command("start"), env=env, check=True, stdout=subprocess.DEVNULL)
    try:
        identity = read_identity(resolve_paths(env))
        if identity is None:
            raise SystemExit("the service started, but left no identity")
        yield identity
    finally:
        subprocess.run(command("stop"), env=env, check=True, stdout=subprocess.DEVNULL)


def start_often(env: Mapping[str, str], service: Identity, runs: int) -> Readings:
    """Starts of the command and of the app, in turn, so that a busy moment falls on both."""
    readings = Readings()
    address = f"{service.host}:{service.port}".encode()
    start_app_once(env, address)  # byte code and file cache are warm from here on
    for _ in range(runs):
        began = time.perf_counter()
        subprocess.run(command("--version"), env=env, check=True, stdout=subprocess.DEVNULL)
        readings.version_ms.append((time.perf_counter() - began) * 1000)
        frame, state = start_app_once(env, address)
        readings.first_frame_ms.append(frame)
        readings.first_state_ms.append(state)
    return readings


def start_app_once(env: Mapping[str, str], address: bytes) -> tuple[float, float]:
    """Milliseconds to the first frame and to the service's address in it."""
    with PtyProcess(command(), env) as app:
        frame = app.read_until(lambda out: b"Settings" in out, FRAME_SECONDS)
        state = app.read_until(lambda out: address in out, FRAME_SECONDS)
        if frame is None or state is None:
            raise SystemExit(f"the app showed no frame: {app.output[-500:]!r}")
        app.send(b"\x11")  # ctrl+q
        app.wait(5)
    return frame * 1000, state * 1000


def watch_idle(env: Mapping[str, str], service: Identity, seconds: float) -> dict[str, float]:
    """What the service takes alone, and what app and service take while the app is open and nobody types."""
    process = psutil.Process(service.pid)
    time.sleep(SETTLE_SECONDS)
    alone = spent(process)
    time.sleep(seconds)
    alone = spent(process) - alone
    with PtyProcess(command(), env) as app:
        app.read_until(lambda out: str(service.port).encode() in out, FRAME_SECONDS)
        app.read(SETTLE_SECONDS)
        app_process = psutil.Process(app.pid)
        watched, drawn = spent(process), spent(app_process)
        written = app.read(seconds)
        watched, drawn = spent(process) - watched, spent(app_process) - drawn
    return {
        "service_cpu_percent": 100 * alone / seconds,
        "watched_service_cpu_percent": 100 * watched / seconds,
        "app_cpu_percent": 100 * drawn / seconds,
        "app_bytes_per_second": written / seconds,
        "service_rss_mb": process.memory_info().rss / MEGABYTE,
    }


def spent(process: psutil.Process) -> float:
    """Seconds of processor time, in user and kernel mode."""
    times = process.cpu_times()
    return times.user + times.system


def base_packages(root: str = "localllm") -> set[str]:
    """What ``pip install localllm`` brings on this platform, itself included: the closure without extras."""
    found: set[str] = set()
    pending: list[tuple[str, frozenset[str]]] = [(root, frozenset())]
    seen: set[tuple[str, frozenset[str]]] = set()
    while pending:
        name, extras = pending.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        found.add(canonicalize_name(package.metadata["Name"]))
        for text in package.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)
            ):
                pending.append((requirement.name, frozenset(requirement.extras)))
    return found


if __name__ == "__main__":
    sys.exit(main())
