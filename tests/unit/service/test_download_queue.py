from __future__ import annotations

from pathlib import Path

import pytest

from localllm.hub.pull_plan import PullPlan
from localllm.hub.sources.base import RemoteFile
from localllm.service.download_queue import Queued, QueueFile

FILE = RemoteFile(source="url", name="m.gguf", url="https://example.org/m.gguf", size_bytes=5)
PLAN = PullPlan(
    reference="https://example.org/m.gguf", name="m:Q4_0", origin="example.org", quant="Q4_0", files=(FILE,)
)


async def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    queue = QueueFile(tmp_path / "state" / "downloads.json")
    assert await queue.read() == ()
    pulls = (Queued(id="a", plan=PLAN), Queued(id="b", plan=PLAN, paused=True))
    await queue.write(pulls)
    assert await queue.read() == pulls
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["downloads.json"]
    assert (tmp_path / "state" / "downloads.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b'{"format":99,"pulls":[]}', b'{"format":1,"pulls":[{"id":1}]}']
)
async def test_a_list_that_cannot_be_read_is_put_aside(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "downloads.json"
    path.write_bytes(content)
    queue = QueueFile(path)
    assert await queue.read() == ()
    assert not path.exists()
    assert put_aside(tmp_path) == [content]
    await queue.write([Queued(id="a", plan=PLAN)])
    assert len(await queue.read()) == 1


async def test_a_disk_that_refuses_does_not_stop_the_pulls(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    await QueueFile(tmp_path / "file" / "downloads.json").write([Queued(id="a", plan=PLAN)])


def put_aside(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.glob("*corrupt*")]
