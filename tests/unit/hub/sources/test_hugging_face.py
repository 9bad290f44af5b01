from __future__ import annotations

import httpx
import msgspec
import pytest

from localllm.core.errors import BadName, DownloadFailed, Gated, HubError, NotFound, Offline
from localllm.hub.references import HuggingFaceReference
from localllm.hub.sources.base import Access, RemoteFile
from localllm.hub.sources.hugging_face import HuggingFace
from tests.support.loopback_hub import COMMIT, REPOSITORY, Faults, LoopbackHub

REFERENCE = HuggingFaceReference(org="maker", repo="Tiny-GGUF")


@pytest.fixture
def source(client: httpx.AsyncClient, access: Access) -> HuggingFace:
    return HuggingFace(client, access)


async def test_a_repository_is_listed_page_by_page_at_a_commit(source: HuggingFace, hub: LoopbackHub) -> None:
    offer = await source.offer(REFERENCE)
    assert offer.name == REPOSITORY
    assert offer.origin == f"hf.co/{REPOSITORY}@{COMMIT}"
    assert offer.licence == "apache-2.0"
    assert {variant.quant: len(variant.files) for variant in offer.variants} == {
        "F32": 1,
        "F16": 1,
        "BF16": 2,
        None: 1,
    }
    assert [file.name for file in offer.projectors] == ["mmproj-tiny-F16.gguf"]
    assert len(hub.requests_for("/tree/")) > 2
    file = next(variant for variant in offer.variants if variant.quant == "F32").files[0]
    assert file.sha256 == hub.digests["tiny-F32.gguf"]
    assert COMMIT in file.url


async def test_a_file_is_located_at_its_signed_address(source: HuggingFace, hub: LoopbackHub) -> None:
    file = (await source.offer(REFERENCE)).variants[0].files[0]
    located = await source.locate(file)
    assert located.url.startswith(f"{hub.url}/cdn/")
    assert located.size == file.size_bytes


async def test_a_token_goes_to_the_hub_and_not_to_its_storage(
    client: httpx.AsyncClient, access: Access, hub: LoopbackHub
) -> None:
    storage = LoopbackHub(hub.files)
    with storage.serving():
        hub.cdn = storage.url
        hub.faults.need_token = "hf_secret"
        source = HuggingFace(client, msgspec.structs.replace(access, hugging_face_token="hf_secret"))
        file = (await source.offer(REFERENCE)).variants[0].files[0]
        located = await source.locate(file)
    assert located.url.startswith(storage.url)
    assert located.token is None
    assert storage.seen == []


async def test_without_a_token_the_gate_is_named(source: HuggingFace, hub: LoopbackHub) -> None:
    file = (await source.offer(REFERENCE)).variants[0].files[0]
    hub.faults.need_token = "hf_secret"
    with pytest.raises(Gated, match="gated") as caught:
        await source.locate(file)
    assert "HF_TOKEN" in (caught.value.hint or "")
    with pytest.raises(Gated, match=r"not found .* or needs a token"):
        await source.offer(REFERENCE)


async def test_a_size_that_differs_from_the_list_is_refused(source: HuggingFace, hub: LoopbackHub) -> None:
    hub.faults.listed_size = 10**15
    file = (await source.offer(REFERENCE)).variants[0].files[0]
    with pytest.raises(DownloadFailed, match="but serves"):
        await source.locate(file)


async def test_a_mirror_that_does_not_name_the_size_is_believed(
    client: httpx.AsyncClient, access: Access
) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        headers = {"location": "https://storage.example/m", "content-length": "0"}
        return httpx.Response(302, headers=headers)

    async with httpx.AsyncClient(transport=httpx.MockTransport(handle)) as mirror:
        file = RemoteFile(
            source="hugging_face",
            name="m.gguf",
            url=f"{access.hugging_face}/m",
            size_bytes=7,
            sha256="0" * 64,
        )
        located = await HuggingFace(mirror, access).locate(file)
    assert (located.url, located.size) == ("https://storage.example/m", 7)


async def test_what_is_gone_is_not_found(source: HuggingFace, hub: LoopbackHub) -> None:
    file = (await source.offer(REFERENCE)).variants[0].files[0]
    hub.files = {}
    with pytest.raises(NotFound):
        await source.locate(file)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Faults(digest="../../etc/passwd"), HubError),
        (Faults(digest="ab"), HubError),
        (Faults(digest=""), HubError),
        (Faults(listed_size=-1), HubError),
        (Faults(listed_size=1 << 60), HubError),
        (Faults(next_page="https://sink.example/steal"), HubError),
        (Faults(redirect="http://169.254.169.254/latest"), None),
        (Faults(redirect="file:///etc/passwd"), DownloadFailed),
    ],
)
async def test_a_hub_that_lies_is_refused(
    source: HuggingFace, hub: LoopbackHub, fault: Faults, error: type[HubError] | None
) -> None:
    hub.faults = fault
    if error is None:
        located = await source.locate((await source.offer(REFERENCE)).variants[0].files[0])
        assert "169.254.169.254:80" not in located.trusted, "the transfer will not go there"
        return
    with pytest.raises(error):
        await source.locate((await source.offer(REFERENCE)).variants[0].files[0])


@pytest.mark.parametrize("name", ["../m.gguf", "a/../../m.gguf", ".git/m.gguf", "C:\\m.gguf", "m\u202e.gguf"])
async def test_odd_names_in_a_list_are_refused(client: httpx.AsyncClient, access: Access, name: str) -> None:
    with LoopbackHub({name: b"GGUF"}).serving() as rogue:
        source = HuggingFace(
            client,
            msgspec.structs.replace(
                access, hugging_face=rogue.url, trusted=(*access.trusted, f"127.0.0.1:{rogue.port}")
            ),
        )
        with pytest.raises(BadName):
            await source.offer(REFERENCE)


async def test_a_repository_without_a_model_says_so(client: httpx.AsyncClient, access: Access) -> None:
    with LoopbackHub({"model.safetensors": b"x"}).serving() as plain:
        source = HuggingFace(
            client,
            Access(hugging_face=plain.url, trusted=(f"127.0.0.1:{plain.port}",)),
        )
        with pytest.raises(NotFound, match="no GGUF") as caught:
            await source.offer(REFERENCE)
    assert "localllm search" in (caught.value.hint or "")


async def test_a_web_page_instead_of_json_is_named(source: HuggingFace, hub: LoopbackHub) -> None:
    answers = httpx.MockTransport(lambda request: httpx.Response(200, stream=httpx.ByteStream(b"<html>")))
    async with httpx.AsyncClient(transport=answers) as client:
        with pytest.raises(DownloadFailed, match="not understood"):
            await HuggingFace(client, Access(hugging_face=hub.url, trusted=(f"127.0.0.1:{hub.port}",))).offer(
                REFERENCE
            )


async def test_offline_means_no_request(client: httpx.AsyncClient, access: Access, hub: LoopbackHub) -> None:
    source = HuggingFace(client, msgspec.structs.replace(access, offline=True))
    with pytest.raises(Offline, match="HF_HUB_OFFLINE"):
        await source.offer(REFERENCE)
    with pytest.raises(Offline):
        await source.search("tiny")
    assert hub.seen == []


async def test_search(source: HuggingFace) -> None:
    (hit,) = await source.search("tiny")
    assert (hit.reference, hit.downloads, hit.source) == (f"hf.co/{REPOSITORY}", 12, "Hugging Face")
