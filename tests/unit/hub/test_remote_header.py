from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from localllm.core.errors import DownloadFailed, GGUFError, NotFound
from localllm.core.facts import facts_from_header
from localllm.hub import remote_header
from localllm.hub.download.transfer import Located
from localllm.hub.gguf_file import read_header
from localllm.hub.remote_header import read_remote_header
from tests.support.loopback_hub import LFS_POINTER, PORTAL, Faults, LoopbackHub


def located(hub: LoopbackHub, name: str) -> Located:
    return Located(url=f"{hub.url}/files/{name}", size=hub.size_of(name), trusted=(f"127.0.0.1:{hub.port}",))


async def test_the_header_is_the_same_as_that_of_the_file(
    hub: LoopbackHub, client: httpx.AsyncClient, served_folder: Path
) -> None:
    far = await read_remote_header(client, located(hub, "tiny-F32.gguf"), "tiny-F32.gguf")
    assert far == read_header(served_folder / "tiny-F32.gguf")


@pytest.fixture
def demo_hub(demo_model: Path) -> Iterator[LoopbackHub]:
    with LoopbackHub({"demo.gguf": demo_model}).serving() as hub:
        yield hub


async def test_of_a_real_model_only_the_beginning_is_fetched(
    demo_hub: LoopbackHub, client: httpx.AsyncClient
) -> None:
    header = await read_remote_header(client, located(demo_hub, "demo.gguf"), "demo.gguf")
    assert facts_from_header(header).parameters > 200_000_000
    assert demo_hub.sent_bytes < 16 << 20
    ranges = [seen.headers["Range"] for seen in demo_hub.seen]
    assert ranges[0] == "bytes=0-2097151"
    assert ranges[1].startswith("bytes=2097152-"), "what is here is not fetched again"


@pytest.mark.parametrize(
    ("body", "words"),
    [(LFS_POINTER, "Git LFS pointer"), (PORTAL, "web page"), (b"", "empty"), (b"GGUF", "ends inside")],
)
async def test_what_is_no_model_is_named(client: httpx.AsyncClient, body: bytes, words: str) -> None:
    with LoopbackHub({"m.gguf": body}).serving() as hub, pytest.raises(GGUFError, match=words):
        await read_remote_header(client, located(hub, "m.gguf"), "m.gguf")


async def test_a_file_shorter_than_its_tensors_is_refused(
    hub: LoopbackHub, client: httpx.AsyncClient
) -> None:
    short = located(hub, "tiny-F32.gguf")
    with pytest.raises(GGUFError, match="too short"):
        await read_remote_header(client, Located(url=short.url, size=200_000, trusted=short.trusted), "m")


async def test_a_header_without_end_is_given_up(
    client: httpx.AsyncClient, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_header, "FIRST_BYTES", 1000)
    monkeypatch.setattr(remote_header, "MAX_HEADER_BYTES", 4000)
    with pytest.raises(GGUFError, match="does not end"):
        await read_remote_header(client, located(hub, "tiny-F32.gguf"), "m")


async def test_a_bad_line_or_a_source_without_ranges_is_coped_with(
    hub: LoopbackHub, client: httpx.AsyncClient
) -> None:
    hub.faults = Faults(drop_after_bytes=100_000, drops=2)
    await read_remote_header(client, located(hub, "tiny-F32.gguf"), "m")
    hub.faults = Faults(ignore_range=True)
    await read_remote_header(client, located(hub, "tiny-F32.gguf"), "m")
    hub.faults = Faults(drop_after_bytes=0)
    with pytest.raises(DownloadFailed):
        await read_remote_header(client, located(hub, "tiny-F32.gguf"), "m")
    gone = located(hub, "tiny-F32.gguf")
    hub.files = {}
    with pytest.raises(NotFound):
        await read_remote_header(client, gone, "m")
