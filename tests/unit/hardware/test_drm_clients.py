from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localllm.core.machine import Holder
from localllm.hardware.asking import RawAnswers, ReplayAsker
from localllm.hardware.drm_clients import client_bytes, drm_holders
from localllm.hardware.parsing import colon_values
from tests.support.machines import linux

AMD = "drm-driver: amdgpu\ndrm-client-id: {id}\ndrm-pdev: 0000:03:00.0\ndrm-memory-vram: {kib} KiB\ndrm-memory-gtt: 100 KiB"
XE = "drm-pdev: 0000:03:00.0\ndrm-total-vram0: 90 MiB\ndrm-resident-vram0: 51200 KiB\ndrm-resident-gtt: 384 KiB"
I915 = (
    "drm-pdev: 0000:03:00.0\ndrm-total-local0: 8 MiB\ndrm-resident-local0: 4 MiB\ndrm-resident-system0: 1 MiB"
)


def processes(*fdinfo: tuple[int, int, str]) -> ReplayAsker:
    """Processes with one descriptor on a render node each: (pid, fd, fdinfo)."""
    texts = {f"/proc/{pid}/fdinfo/{fd}": text for pid, fd, text in fdinfo}
    texts.update({f"/proc/{pid}/comm": f"p{pid}" for pid, _, _ in fdinfo})
    names: dict[str, list[str]] = {"/proc": [*sorted({str(pid) for pid, _, _ in fdinfo}), "self"]}
    for pid, fd, _ in fdinfo:
        names.setdefault(f"/proc/{pid}/fd", ["0"]).append(str(fd))
    targets = {f"/proc/{pid}/fd/{fd}": "/dev/dri/renderD128" for pid, fd, _ in fdinfo}
    return linux(texts, names=names, targets=targets)


def test_a_client_open_twice_counts_once_and_two_clients_add_up() -> None:
    asker = processes(
        (7, 3, AMD.format(id=1, kib=1000)),
        (7, 4, AMD.format(id=1, kib=1000)),
        (7, 5, AMD.format(id=2, kib=24)),
        (9, 3, AMD.format(id=3, kib=4096)),
    )
    assert drm_holders(asker) == {
        "0000:03:00.0": (Holder(9, "p9", 4096 * 1024), Holder(7, "p7", 1024 * 1024)),
    }


def test_dialects_of_the_drivers() -> None:
    assert client_bytes(colon_values(XE)) == 51200 * 1024
    assert client_bytes(colon_values(I915)) == 4 << 20
    assert client_bytes(colon_values(I915), shared=True) == 5 << 20
    assert client_bytes(colon_values(AMD.format(id=1, kib=10)), shared=True) == 110 * 1024


def test_a_client_without_device_memory_is_no_holder() -> None:
    assert drm_holders(processes((7, 3, AMD.format(id=1, kib=0)))) == {}


def test_descriptors_that_are_no_card_are_not_read() -> None:
    asker = processes((7, 3, AMD.format(id=1, kib=10)))
    asker.answers.targets["/proc/7/fd/3"] = "/dev/null"
    assert drm_holders(asker) == {}


@given(st.dictionaries(st.text(), st.text()), st.booleans())
def test_fields_of_any_kind_are_an_amount(fields: dict[str, str], shared: bool) -> None:
    prefixed = {f"drm-resident-vram{key}": value for key, value in fields.items()}
    assert client_bytes(prefixed, shared=shared) >= 0


def test_nothing_to_see_is_nobody() -> None:
    assert drm_holders(ReplayAsker(RawAnswers(system="Linux", architecture="", hostname=""))) == {}
