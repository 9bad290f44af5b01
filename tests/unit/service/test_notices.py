from __future__ import annotations

from localllm.service.notices import Notices


def test_a_notice_stays_until_its_reason_goes() -> None:
    changes: list[int] = []
    notices = Notices(lambda: changes.append(1))
    notices.show("disk", "error", "full")
    (first,) = notices.all()
    notices.show("disk", "error", "full")
    assert notices.all() == (first,) and len(changes) == 1

    notices.show("disk", "warning", "nearly full")
    assert [n.text for n in notices.all()] == ["nearly full"]
    notices.clear("disk")
    notices.clear("disk")
    assert notices.all() == () and len(changes) == 3
