from __future__ import annotations

from localllm.hardware.pci import AMD, Card, KnownCard, drm_cards, known_card, libdrm_name
from tests.support.machines import linux


def card(device: int, revision: int | None, vendor: int = AMD) -> Card:
    return Card("/sys/class/drm/card0", "0000:03:00.0", vendor, device, revision, "amdgpu")


def test_cards_are_listed_in_the_kernels_order_without_their_connectors() -> None:
    texts = {}
    for number in (0, 2, 10):
        texts[f"/sys/class/drm/card{number}/device/vendor"] = "0x1002"
        texts[f"/sys/class/drm/card{number}/device/device"] = f"{0x7000 + number:#x}"
    texts["/sys/class/drm/card1/device/vendor"] = "0x8086"
    texts["/sys/class/drm/card3/device/vendor"] = "0x1002"  # has no id
    names = {"/sys/class/drm": ["card0", "card0-DP-1", "card1", "card10", "card2", "card3", "renderD128"]}
    found = list(drm_cards(linux(texts, names=names), AMD))
    assert [one.device for one in found] == [0x7000, 0x7002, 0x700A]
    assert found[0].driver is None


def test_a_name_needs_its_revision_where_the_id_is_shared() -> None:
    assert known_card(card(0x744C, 0xC8)) == KnownCard("AMD Radeon RX 7900 XTX", False)
    assert known_card(card(0x744C, 0xCC)) == KnownCard("AMD Radeon RX 7900 XT", False)
    assert known_card(card(0x744C, 0x00)) is None
    assert known_card(card(0x1586, None)) == KnownCard("AMD Radeon 8060S Graphics", True)
    assert known_card(card(0x744C, 0xC8, vendor=0x8086)) is None


def test_libdrms_list_is_read_with_its_comments_and_blanks() -> None:
    text = "# List of AMDGPU IDs\n1.0.0\n\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n7481,   C7,     AMD Steam Machine\nbad line"
    asker = linux({"/usr/share/libdrm/amdgpu.ids": text})
    assert libdrm_name(asker, card(0x744C, 0xC8)) == "AMD Radeon RX 7900 XTX"
    assert libdrm_name(asker, card(0x7481, 0xC7)) == "AMD Steam Machine"
    assert libdrm_name(asker, card(0x744C, 0xCC)) is None
