from __future__ import annotations

import pytest

from localllm.hardware.asking import RawAnswers, ReplayAsker
from localllm.hardware.surroundings import container_name, is_wsl
from tests.support.machines import linux

WSL = "Linux version 5.15.167.4-microsoft-standard-WSL2"


@pytest.mark.parametrize(
    ("texts", "environment", "name"),
    [
        ({}, {}, None),
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({}, {"container": "lxc"}, "lxc"),
        ({"/run/systemd/container": "systemd-nspawn"}, {}, "systemd-nspawn"),
        ({"/proc/self/cgroup": "4:memory:/docker/abc"}, {}, "docker"),
        ({"/proc/self/cgroup": "0::/kubepods.slice/pod1"}, {}, "kubernetes"),
        ({"/proc/version": WSL}, {}, "wsl2"),
        ({"/proc/version": WSL, "/.dockerenv": ""}, {}, "docker"),
    ],
)
def test_what_we_run_in(texts: dict[str, str], environment: dict[str, str], name: str | None) -> None:
    assert container_name(linux(texts, environment=environment)) == name


def test_wsl_is_linux_with_microsofts_kernel() -> None:
    assert is_wsl(linux({"/proc/version": WSL}))
    assert not is_wsl(linux({"/proc/version": "Linux version 6.8.0-52-generic"}))
    assert not is_wsl(ReplayAsker(RawAnswers(system="Windows", architecture="AMD64", hostname="w")))
