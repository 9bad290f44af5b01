"""Installing a build: fetch or compile into a staging folder, start it once, and only then put it on the shelf.

pip is what installs, whoever made the environment: the environment's own pip, else uv (whose tool environments have no
pip), else a pip from pipx's shared libraries. The new build is imported in a fresh process before anybody may use it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from localllm.core.errors import EngineUnavailable, LoadFailed
from localllm.engines.builds.choice import Attempt, BuildChoice
from localllm.engines.builds.shelf import Build, Shelf

PACKAGE = "llama-cpp-python"
REQUIREMENT = "llama-cpp-python>=0.3.35,<0.4"
PROBE_SECONDS = 60.0
INSTALL_SECONDS = 3600.0

Say = Callable[[str], None]


class ProbeResult(Struct, frozen=True, kw_only=True):
    """What a build said of itself when it was started once."""

    version: str
    cpu_features: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    can_offload: bool = False


def install_build(
    choice: BuildChoice,
    shelf: Shelf,
    *,
    say: Say,
    requirement: str = REQUIREMENT,
    extra_arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    now: Callable[[], float] = time.time,
) -> Build:
    """Try the attempts in order until one is installed, starts, and can do what it was chosen for.

    ``say`` gets one line per step for a person. ``extra_arguments`` go to the installer (an index of one's own).

    Raises:
        EngineUnavailable: no installer, or every attempt failed; the hint holds the last lines of the last one.
    """
    installer = find_installer()
    shelf.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    failures: list[str] = []
    for attempt in choice.attempts:
        missing = [tool for tool in attempt.needs if shutil.which(tool) is None]
        if missing:
            failures.append(f"building from source needs {', '.join(missing)}")
            continue
        say(_describe(choice, attempt))
        with _staging(shelf.root) as staged:
            problem = _run_installer(installer, attempt, staged, requirement, extra_arguments, environment)
            if problem is not None:
                failures.append(problem)
                say(
                    "That did not work; trying the next way."
                    if attempt is not choice.attempts[-1]
                    else problem
                )
                continue
            try:
                probed = probe_build(staged)
            except LoadFailed as error:
                failures.append(error.message)
                continue
            if choice.backend.value != "cpu" and not probed.can_offload:
                failures.append(f"the {attempt.kind} build has no {choice.backend.value} support")
                continue
            build = Build(
                name=f"{probed.version}-{choice.backend.value}"
                + ("-native" if attempt.kind == "source" else ""),
                version=probed.version,
                backend=choice.backend.value,
                kind=attempt.kind,
                installed_at=now(),
                cpu_features=probed.cpu_features,
                devices=probed.devices,
            )
            shelf.publish(staged, build)
            return build
    raise EngineUnavailable(
        f"No {choice.backend.value} build of {PACKAGE} could be installed: {'; '.join(failures)}.",
        hint="The build in use until now is untouched. localllm doctor names what is missing.",
    )


def find_installer() -> tuple[str, ...]:
    """The command that installs packages here, up to its ``install`` word.

    Raises:
        EngineUnavailable: neither pip nor uv nor pipx is to be found.
    """
    own = (sys.executable, "-m", "pip")
    if _answers((*own, "--version")):
        return own
    uv = shutil.which("uv")
    if uv:
        return (uv, "pip")
    shared = Path(os.environ.get("PIPX_SHARED_LIBS", "~/.local/share/pipx/shared")).expanduser()
    pipx_python = shared / "bin" / "python"
    if _answers((str(pipx_python), "-m", "pip", "--version")):
        return (str(pipx_python), "-m", "pip", "--python", sys.executable)
    raise EngineUnavailable(
        "Nothing here can install Python packages: no pip in this environment, no uv, no pipx.",
        hint="Install pip into localllm's environment: python -m ensurepip",
    )


def probe_build(folder: Path | None) -> ProbeResult:
    """Start a build once, in its own process (``folder`` None = the environment's own), and hear what it is.

    Raises:
        LoadFailed: it does not import or crashes; the message holds the last line it said.
    """
    environment = dict(os.environ)
    if folder is not None:
        environment["PYTHONPATH"] = str(folder)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"the build did not start within {PROBE_SECONDS:g} s") from None
    if done.returncode != 0:
        raise LoadFailed(
            f"the build does not start: {_last_line(done.stderr) or f'exit code {done.returncode}'}"
        )
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=ProbeResult)


# Runs in the probed environment, where localllm itself may not be importable.
_PROBE = """
import json
import llama_cpp
from llama_cpp import llama_cpp as lib
lib.llama_backend_init()
info = lib.llama_print_system_info().decode()
features = [word.split(" = ")[0].strip() for word in info.replace(":", " |").split("|") if word.strip().endswith("= 1")]
devices = [part.split(":")[0].strip() for part in info.split("|") if ":" in part]
print(json.dumps({"version": llama_cpp.__version__, "cpu_features": features, "devices": devices,
                  "can_offload": bool(lib.llama_supports_gpu_offload())}))
"""


def _run_installer(
    installer: Sequence[str],
    attempt: Attempt,
    staged: Path,
    requirement: str,
    extra_arguments: Sequence[str],
    environment: Mapping[str, str] | None,
) -> str | None:
    """Install into ``staged``; None when it worked, else why not in a few words."""
    command = [*installer, "install", "--target", str(staged), requirement, *extra_arguments]
    variables = dict(os.environ if environment is None else environment)
    if attempt.kind == "prebuilt":
        command += ["--only-binary", PACKAGE]
        if attempt.index is not None:
            command += ["--extra-index-url", attempt.index]
    else:
        command += ["--no-binary", PACKAGE]
        variables["CMAKE_ARGS"] = " ".join((variables.get("CMAKE_ARGS", ""), *attempt.cmake)).strip()
        variables.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"the {attempt.kind} install took more than {INSTALL_SECONDS / 60:g} minutes"
    if done.returncode == 0:
        return None
    return f"the {attempt.kind} install failed ({_last_line(done.stderr) or 'no message'})"


@contextlib.contextmanager
def _staging(root: Path) -> Iterator[Path]:
    """A folder on the shelf's own disk; gone afterwards unless it was moved into place."""
    folder = Path(tempfile.mkdtemp(prefix=".staging-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _describe(choice: BuildChoice, attempt: Attempt) -> str:
    if attempt.kind == "prebuilt":
        return f"Looking for a prebuilt {choice.backend.value} wheel of {PACKAGE}."
    return f"Building {PACKAGE} from source for {choice.backend.value} (5 to 20 minutes)."


def _answers(command: Sequence[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[-1][:300]
