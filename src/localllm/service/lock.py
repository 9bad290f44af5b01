"""One service per state folder, held by an operating-system lock that a crash releases by itself."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from localllm.core.errors import AlreadyRunning, Forbidden
from localllm.settings.identity import read_identity
from localllm.settings.paths import Paths
from localllm.settings.private import secure_folder


class ServiceLock:
    """Held from before the service touches anything until it has let go of everything."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._lock = FileLock(paths.lock_file, timeout=0, mode=0o600)

    def acquire(self) -> Self:
        """Take the lock.

        Raises:
            AlreadyRunning: another service has it; the message names its address.
            Forbidden: the state folder or the lock file is not ours alone.
        """
        secure_folder(self._paths.state_dir)
        if self._paths.lock_file.is_symlink():
            raise Forbidden(
                f"{self._paths.lock_file} is a link.", hint="Somebody planted it; remove it and start again."
            )
        try:
            self._lock.acquire()
        except Timeout as error:
            raise already_running(self._paths) from error
        return self

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def already_running(paths: Paths) -> AlreadyRunning:
    """The error that says where the service that holds the lock listens."""
    identity = read_identity(paths)
    if identity is None:
        return AlreadyRunning(
            "A localllm service is starting for this user.", hint="See it with: localllm status"
        )
    return AlreadyRunning(
        f"The localllm service already runs at http://{identity.host}:{identity.port} (pid {identity.pid}).",
        hint="Use it, or stop it first with: localllm stop",
        details={"host": identity.host, "port": identity.port, "pid": identity.pid},
    )
