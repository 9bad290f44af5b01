from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localllm.core.units import GIB, MIB
from localllm.hardware.asking import RawAnswers, ReplayAsker
from localllm.hardware.cgroup import cgroup_folders, cgroup_limits
from tests.support.machines import linux

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1 = "31 23 0:27 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory"


def group(folder: str, limit: str, used: int, inactive: int = 0) -> dict[str, str]:
    return {
        f"{folder}/memory.max": limit,
        f"{folder}/memory.current": str(used),
        f"{folder}/memory.stat": f"anon 1\ninactive_file {inactive}",
    }


def test_no_limit_anywhere_is_no_limit() -> None:
    limits = cgroup_limits(
        linux(
            {"/proc/self/mountinfo": V2, "/proc/self/cgroup": "0::/a", "/sys/fs/cgroup/a/memory.max": "max"}
        )
    )
    assert (limits.limit_bytes, limits.room_bytes, limits.cpus) == (None, None, None)


def test_the_tightest_level_counts_even_when_a_parent_holds_it() -> None:
    texts = {
        "/proc/self/mountinfo": V2,
        "/proc/self/cgroup": "0::/user.slice/app.scope",
        **group("/sys/fs/cgroup/user.slice/app.scope", str(8 * GIB), GIB),
        **group("/sys/fs/cgroup/user.slice", str(10 * GIB), 9 * GIB, inactive=GIB // 2),
    }
    limits = cgroup_limits(linux(texts))
    assert limits.limit_bytes == 8 * GIB
    assert limits.room_bytes == 10 * GIB - 9 * GIB + GIB // 2
    assert [found.path for found in limits.memory] == [
        "/sys/fs/cgroup/user.slice/app.scope",
        "/sys/fs/cgroup/user.slice",
    ]


def test_memory_high_slows_before_memory_max_kills() -> None:
    texts = {
        "/proc/self/mountinfo": V2,
        "/proc/self/cgroup": "0::/a",
        **group("/sys/fs/cgroup/a", str(8 * GIB), 0),
        "/sys/fs/cgroup/a/memory.high": str(6 * GIB),
    }
    assert cgroup_limits(linux(texts)).limit_bytes == 6 * GIB


def test_a_limit_without_a_usage_is_a_limit_of_unknown_room() -> None:
    texts = {
        "/proc/self/mountinfo": V2,
        "/proc/self/cgroup": "0::/a",
        "/sys/fs/cgroup/a/memory.max": str(GIB),
    }
    limits = cgroup_limits(linux(texts))
    assert (limits.limit_bytes, limits.room_bytes) == (GIB, None)


def test_over_the_limit_there_is_no_room_but_never_less() -> None:
    texts = {
        "/proc/self/mountinfo": V2,
        "/proc/self/cgroup": "0::/a",
        **group("/sys/fs/cgroup/a", str(GIB), 2 * GIB),
    }
    assert cgroup_limits(linux(texts)).room_bytes == 0


def test_v1_reads_hierarchical_figures_and_knows_its_no_limit() -> None:
    folder = "/sys/fs/cgroup/memory/job"
    texts = {
        "/proc/self/mountinfo": V1,
        "/proc/self/cgroup": "4:memory:/job\n1:name=systemd:/",
        f"{folder}/memory.limit_in_bytes": str(2 * GIB),
        f"{folder}/memory.usage_in_bytes": str(GIB),
        f"{folder}/memory.stat": f"inactive_file 1\ntotal_inactive_file {100 * MIB}",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    }
    limits = cgroup_limits(linux(texts))
    assert (limits.limit_bytes, limits.room_bytes) == (2 * GIB, GIB + 100 * MIB)


def test_cpu_quota_of_both_versions() -> None:
    v2 = {
        "/proc/self/mountinfo": V2,
        "/proc/self/cgroup": "0::/a",
        "/sys/fs/cgroup/a/cpu.max": "150000 100000",
    }
    assert cgroup_limits(linux(v2)).cpus == 1.5
    v1 = {
        "/proc/self/mountinfo": "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct",
        "/proc/self/cgroup": "3:cpu,cpuacct:/a",
        "/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1",
        "/sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    }
    assert cgroup_limits(linux(v1)).cpus == 4


def test_folders_lead_from_our_group_to_the_mount_and_never_out_of_it() -> None:
    asker = linux({"/proc/self/mountinfo": V2, "/proc/self/cgroup": "0::/a/b"})
    assert cgroup_folders(asker) == ("/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup")
    outside = linux({"/proc/self/mountinfo": V2, "/proc/self/cgroup": "0::/../../../etc"})
    assert all(folder.startswith("/sys/fs/cgroup") for folder in cgroup_folders(outside))


def test_other_systems_have_no_cgroups() -> None:
    assert (
        cgroup_limits(ReplayAsker(RawAnswers(system="Darwin", architecture="arm64", hostname="m"))).memory
        == ()
    )


@given(mountinfo=st.text(), groups=st.text(), limit=st.text())
def test_garbage_is_no_limit_and_no_error(mountinfo: str, groups: str, limit: str) -> None:
    for mounts in (mountinfo, V2):
        texts = {
            "/proc/self/mountinfo": mounts,
            "/proc/self/cgroup": groups,
            "/sys/fs/cgroup/memory.max": limit,
        }
        found = cgroup_limits(linux(texts))
        assert found.limit_bytes is None or found.limit_bytes >= 0
