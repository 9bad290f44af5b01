"""Files and folders that belong to one user: 0700 and 0600, written whole or not at all, never through a link.

The state folder holds the admin key, so another user of the machine must not be able to plant, read or replace what
lies in it. Where the operating system has no such modes (Windows), the user profile's own rights apply.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from localllm.core.errors import Forbidden

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_MAX_BYTES = 1 << 20


def secure_folder(path: Path) -> Path:
    """Create ``path`` as 0700, or tighten it; what leads to it is created as it must be.

    Raises:
        Forbidden: it is a link, not a folder, or another user's.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise Forbidden(
            f"{path} is not a folder of its own (a link or a file).", hint="Move it away and start again."
        )
    _require_own(path, found)
    if os.name == "posix" and found.st_mode & 0o077:
        path.chmod(0o700)
    return path


def write_private(path: Path, data: bytes) -> None:
    """Write ``path`` as 0600: beside it first, flushed to disk, then renamed over whatever was there."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _BINARY
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_private(path: Path) -> bytes | None:
    """The content of ``path``; None when it is not there.

    Raises:
        Forbidden: it is a link, not a regular file, another user's, or open to others.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW | _BINARY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Forbidden(
            f"{path} cannot be trusted: {error.strerror}.", hint="Move it away and start again."
        ) from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Forbidden(f"{path} is not a regular file.", hint="Move it away and start again.")
        _require_own(path, found)
        if os.name == "posix" and found.st_mode & 0o077:
            raise Forbidden(f"{path} can be read by other users.", hint=f"Tighten it with: chmod 600 {path}")
        return os.read(descriptor, _MAX_BYTES)
    finally:
        os.close(descriptor)


def _require_own(path: Path, found: os.stat_result) -> None:
    user = getattr(os, "getuid", None)
    if user is not None and found.st_uid not in (user(), 0):
        raise Forbidden(f"{path} belongs to another user.", hint="Move it away, or set LOCALLLM_HOME.")
