"""The memory and CPU limits of the control groups this process is in, cgroup v1 and v2.

Every level from our own group up to the root may have a limit, and the tightest counts. Page cache that can be dropped
(``inactive_file``) counts as used by the group but is free to a process that needs memory, so it is given back.
"""

from __future__ import annotations

import posixpath

from msgspec import Struct

from localllm.hardware.asking import Asker
from localllm.hardware.parsing import plausible_bytes, to_int, word_pairs


class MemoryGroup(Struct, frozen=True):
    """One level with a limit. ``room_bytes`` is what it still allows: limit − (used − inactive_file)."""

    path: str
    limit_bytes: int
    room_bytes: int | None


class CgroupLimits(Struct, frozen=True):
    """Levels with a memory limit, our own group first, and the CPUs' worth of time we may use."""

    memory: tuple[MemoryGroup, ...] = ()
    cpus: float | None = None

    @property
    def limit_bytes(self) -> int | None:
        return min((group.limit_bytes for group in self.memory), default=None)

    @property
    def room_bytes(self) -> int | None:
        rooms = [group.room_bytes for group in self.memory if group.room_bytes is not None]
        return min(rooms, default=None)


class _Names(Struct, frozen=True):
    """How one cgroup version names its memory files."""

    limits: tuple[str, ...]
    usage: str
    inactive: str


_V2 = _Names(limits=("memory.max", "memory.high"), usage="memory.current", inactive="inactive_file")
_V1 = _Names(limits=("memory.limit_in_bytes",), usage="memory.usage_in_bytes", inactive="total_inactive_file")


def cgroup_limits(asker: Asker) -> CgroupLimits:
    """Walk the groups named in ``/proc/self/cgroup`` under their mount points."""
    memory: list[MemoryGroup] = []
    cpus: list[float] = []
    for controller, folders in _hierarchies(asker):
        for folder in folders:
            if controller != "cpu":
                memory.extend(_memory(asker, folder, _V2 if controller == "cgroup2" else _V1))
            if controller != "memory":
                cpus.extend(_cpus(asker, folder))
    return CgroupLimits(memory=tuple(memory), cpus=min(cpus, default=None))


def cgroup_folders(asker: Asker) -> tuple[str, ...]:
    """The folders of the unified hierarchy from our group up, for its pressure and event files."""
    return next((folders for controller, folders in _hierarchies(asker) if controller == "cgroup2"), ())


def _hierarchies(asker: Asker) -> list[tuple[str, tuple[str, ...]]]:
    """``cgroup2``, ``memory`` and ``cpu``, as far as they are mounted, each with our folders in it."""
    if asker.system != "Linux":
        return []
    mounts = _mounts(asker.text("/proc/self/mountinfo"))
    found: list[tuple[str, tuple[str, ...]]] = []
    for line in (asker.text("/proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        controllers = parts[1].split(",") if len(parts) == 3 and parts[1] else ["cgroup2"]
        for controller in ("cgroup2", "memory", "cpu"):
            mount = mounts.get(controller)
            if len(parts) == 3 and controller in controllers and mount is not None:
                found.append((controller, _levels(mount, parts[2])))
    return found


class _Mount(Struct, frozen=True):
    root: str
    point: str


def _mounts(mountinfo: str | None) -> dict[str, _Mount]:
    """Controller → mount; the unified hierarchy is ``cgroup2``. Format: proc(5), ``/proc/pid/mountinfo``."""
    found: dict[str, _Mount] = {}
    for line in (mountinfo or "").splitlines():
        before, dash, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if not dash or len(fields) < 5 or len(kinds) < 3:
            continue
        mount = _Mount(root=fields[3], point=fields[4])
        if kinds[0] == "cgroup2":
            found.setdefault("cgroup2", mount)
        elif kinds[0] == "cgroup":
            for controller in kinds[2].split(","):
                found.setdefault(controller, mount)
    return found


def _levels(mount: _Mount, path: str) -> tuple[str, ...]:
    """The folders from our group up to the mount point.

    In a container without a cgroup namespace the path is the host's, while only our own part is mounted: what is
    the mount's root is cut off.
    """
    if mount.root != "/" and (path == mount.root or path.startswith(mount.root + "/")):
        path = path[len(mount.root) :]
    relative = posixpath.normpath("/" + path.lstrip("/"))
    folders: list[str] = []
    while relative != "/" and len(folders) < 64:
        folders.append(mount.point + relative)
        relative = posixpath.dirname(relative)
    return (*folders, mount.point)


def _memory(asker: Asker, folder: str, names: _Names) -> list[MemoryGroup]:
    """The limit of one level, if it has one. ``max``, and v1's 2^63 less a page, mean none."""
    limits = [plausible_bytes(to_int(asker.text(f"{folder}/{name}"))) for name in names.limits]
    known = [limit for limit in limits if limit is not None]
    if not known:
        return []
    limit = min(known)
    used = plausible_bytes(to_int(asker.text(f"{folder}/{names.usage}")))
    if used is None:
        return [MemoryGroup(folder, limit, None)]
    inactive = word_pairs(asker.text(f"{folder}/memory.stat")).get(names.inactive, 0)
    working = max(0, used - max(0, inactive))
    return [MemoryGroup(folder, limit, max(0, limit - working))]


def _cpus(asker: Asker, folder: str) -> list[float]:
    """CPU time per period as a number of CPUs: v2 ``cpu.max``, v1 ``cpu.cfs_quota_us``."""
    both = (asker.text(f"{folder}/cpu.max") or "").split()
    quota, period = (both[0], both[1]) if len(both) == 2 else (None, None)
    if quota is None:
        quota = asker.text(f"{folder}/cpu.cfs_quota_us")
        period = asker.text(f"{folder}/cpu.cfs_period_us")
    granted, of = to_int(quota), to_int(period)
    return [granted / of] if granted is not None and of is not None and granted > 0 and of > 0 else []
