"""How a probe asks this machine: files, folders, links, programs — and the record of what they answered.

Probes never open anything themselves. They ask an ``Asker``: ``LiveAsker`` asks the machine and records every answer,
``ReplayAsker`` gives back a record. So one code path serves detection, bug reports (``localllm hw --save FILE``) and
tests on machines that are not here. Absent is ``None`` or empty, never an exception; why something did not answer is
in ``failure``.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from localllm.core.errors import HardwareError

RECORD_FORMAT = 1
_LARGEST_TEXT_BYTES = 4 << 20


class RawAnswers(Struct, kw_only=True):
    """Everything a detection was told, keyed by what was asked. JSON-ready; absent keys did not exist."""

    format: int = RECORD_FORMAT
    system: str
    architecture: str
    hostname: str
    texts: dict[str, str] = {}
    names: dict[str, list[str]] = {}
    targets: dict[str, str] = {}
    outputs: dict[str, str] = {}
    environment: dict[str, str] = {}
    failures: dict[str, str] = {}


class Asker(Protocol):
    """What a probe may ask. No method raises."""

    @property
    def system(self) -> str:
        """``Linux``, ``Darwin`` or ``Windows``."""

    @property
    def architecture(self) -> str:
        """The processor architecture as ``uname -m`` spells it."""

    @property
    def hostname(self) -> str: ...

    def text(self, path: str) -> str | None:
        """The content of a file without surrounding blanks; ``None`` if it cannot be read."""

    def names(self, path: str) -> tuple[str, ...]:
        """The sorted names in a folder; empty if it cannot be read."""

    def target(self, path: str) -> str | None:
        """Where a symbolic link leads, resolved; ``None`` if it is none."""

    def output(self, name: str, argv: Sequence[str]) -> str | None:
        """What a program printed; ``name`` is its key in the record. ``None`` if it is absent, failed or hung."""

    def environment(self, name: str) -> str | None:
        """An environment variable."""

    def failure(self, source: str) -> str | None:
        """Why ``source`` (a path or a program's name) is there but did not answer."""


class LiveAsker:
    """Asks this machine, within ``deadline_s`` seconds for all programs together, and records the answers."""

    def __init__(self, *, deadline_s: float) -> None:
        self._until = time.monotonic() + deadline_s
        self.answers = RawAnswers(
            system=platform.system(), architecture=platform.machine(), hostname=platform.node()
        )

    @property
    def system(self) -> str:
        return self.answers.system

    @property
    def architecture(self) -> str:
        return self.answers.architecture

    @property
    def hostname(self) -> str:
        return self.answers.hostname

    def text(self, path: str) -> str | None:
        try:
            with Path(path).open("rb") as file:
                found = file.read(_LARGEST_TEXT_BYTES)
        except OSError as error:
            self._failed(path, error)
            return None
        text = found.decode("utf-8", "replace").strip("\0 \t\n")
        self.answers.texts[path] = text
        return text

    def names(self, path: str) -> tuple[str, ...]:
        try:
            found = sorted(os.listdir(path))  # noqa: PTH208 - a Path per entry costs ten times as much in /proc
        except OSError:
            return ()  # not worth a note: most folders of /proc belong to other users
        self.answers.names[path] = found
        return tuple(found)

    def target(self, path: str) -> str | None:
        link = Path(path)
        if not link.is_symlink():
            return None
        found = os.path.realpath(link)
        self.answers.targets[path] = found
        return found

    def output(self, name: str, argv: Sequence[str]) -> str | None:
        left = self._until - time.monotonic()
        try:
            found = run_bounded(argv, timeout_s=left)
        except OSError as error:
            self._failed(name, error)
            return None
        except subprocess.TimeoutExpired:
            self.answers.failures[name] = f"no answer within {max(left, 0):.1f} s"
            return None
        except subprocess.CalledProcessError as error:
            last = (str(error.stderr).strip().splitlines() or ["no message"])[-1]
            self.answers.failures[name] = f"exit code {error.returncode}: {last[:200]}"
            return None
        self.answers.outputs[name] = found
        return found

    def environment(self, name: str) -> str | None:
        found = os.environ.get(name)
        if found is not None:
            self.answers.environment[name] = found
        return found

    def failure(self, source: str) -> str | None:
        return self.answers.failures.get(source)

    def _failed(self, source: str, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            self.answers.failures[source] = error.strerror or type(error).__name__


class ReplayAsker:
    """Gives back recorded answers; what was not recorded is absent."""

    def __init__(self, answers: RawAnswers) -> None:
        self.answers = answers

    @property
    def system(self) -> str:
        return self.answers.system

    @property
    def architecture(self) -> str:
        return self.answers.architecture

    @property
    def hostname(self) -> str:
        return self.answers.hostname

    def text(self, path: str) -> str | None:
        return self.answers.texts.get(path)

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(self.answers.names.get(path, ()))

    def target(self, path: str) -> str | None:
        return self.answers.targets.get(path)

    def output(self, name: str, argv: Sequence[str]) -> str | None:
        return self.answers.outputs.get(name)

    def environment(self, name: str) -> str | None:
        return self.answers.environment.get(name)

    def failure(self, source: str) -> str | None:
        return self.answers.failures.get(source)


def run_bounded(argv: Sequence[str], *, timeout_s: float) -> str:
    """Run a program and return its standard output, waiting at most ``timeout_s`` seconds (and a half to kill it).

    A program stuck in the kernel cannot be killed; it is left behind rather than waited for.

    Raises:
        OSError: it cannot be started.
        subprocess.TimeoutExpired: it did not end in time.
        subprocess.CalledProcessError: it ended with an error.
    """
    if timeout_s <= 0:
        raise subprocess.TimeoutExpired(list(argv), timeout_s)
    environment: Mapping[str, str] = {**os.environ, "LC_ALL": "C", "PYTHONWARNINGS": "ignore"}
    child = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        errors="replace",
    )
    try:
        output, errors = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        try:
            child.communicate(timeout=0.5)
        except subprocess.TimeoutExpired:
            pass  # uninterruptible: only the kernel can end it
        raise
    if child.returncode != 0:
        raise subprocess.CalledProcessError(child.returncode, list(argv), output, errors)
    return output


def merge_answers(parts: Sequence[RawAnswers]) -> RawAnswers:
    """One record of several probes' answers; the first part names the machine."""
    merged = RawAnswers(
        system=parts[0].system, architecture=parts[0].architecture, hostname=parts[0].hostname
    )
    for part in parts:
        merged.texts.update(part.texts)
        merged.names.update(part.names)
        merged.targets.update(part.targets)
        merged.outputs.update(part.outputs)
        merged.environment.update(part.environment)
        merged.failures.update(part.failures)
    return merged


def save_answers(answers: RawAnswers, path: Path) -> None:
    """Write a record as readable JSON.

    Raises:
        HardwareError: the file cannot be written.
    """
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(answers, order="sorted"), indent=1) + b"\n")
    except OSError as error:
        raise HardwareError(f"The answers cannot be written to {path}: {error.strerror}") from error


def load_answers(path: Path) -> RawAnswers:
    """Read a record that ``save_answers`` wrote.

    Raises:
        HardwareError: the file cannot be read or is no such record.
    """
    try:
        answers = msgspec.json.decode(path.read_bytes(), type=RawAnswers)
    except OSError as error:
        raise HardwareError(f"The answers cannot be read from {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise HardwareError(f"{path} is not a record of hardware answers: {error}") from error
    if answers.format != RECORD_FORMAT:
        raise HardwareError(f"{path} has format {answers.format}; this version reads format {RECORD_FORMAT}")
    return answers
