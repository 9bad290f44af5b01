"""What this system runs in: a container, or the Linux of a Windows machine. Both change what memory there is."""

from __future__ import annotations

from localllm.hardware.asking import Asker

_GROUP_WORDS = (
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("lxc", "lxc"),
    ("containerd", "containerd"),
)


def is_wsl(asker: Asker) -> bool:
    """Whether this is Linux under Windows: Microsoft's kernel says so in its version."""
    return asker.system == "Linux" and "microsoft" in (asker.text("/proc/version") or "").lower()


def container_name(asker: Asker) -> str | None:
    """``docker``, ``podman``, ``kubernetes``, ``lxc``, ``systemd-nspawn``, ``wsl2`` …, or ``None`` on bare metal or a VM."""
    if asker.system != "Linux":
        return None
    if asker.environment("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if asker.text("/run/.containerenv") is not None:
        return "podman"
    if asker.text("/.dockerenv") is not None:
        return "docker"
    named = asker.environment("container") or asker.text("/run/systemd/container")
    if named:
        return named
    groups = asker.text("/proc/self/cgroup") or ""
    for word, name in _GROUP_WORDS:
        if word in groups:
            return name
    return "wsl2" if is_wsl(asker) else None
