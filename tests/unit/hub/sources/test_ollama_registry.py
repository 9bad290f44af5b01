from __future__ import annotations

import httpx
import pytest

from localllm.core.errors import DownloadFailed, HubError, LocalLLMError, NotFound
from localllm.hub.references import OllamaReference
from localllm.hub.sources.base import Access
from localllm.hub.sources.ollama_registry import OllamaRegistry
from tests.support.loopback_hub import Faults, LoopbackHub

REFERENCE = OllamaReference(name="tiny")


@pytest.fixture
def source(client: httpx.AsyncClient, access: Access) -> OllamaRegistry:
    return OllamaRegistry(client, access)


async def test_a_manifest_becomes_an_offer(source: OllamaRegistry, hub: LoopbackHub) -> None:
    offer = await source.offer(REFERENCE)
    assert (offer.name, offer.tag, offer.origin) == ("tiny", "latest", "ollama:library/tiny:latest")
    assert (offer.stop, offer.sampling.temperature, offer.licence) == (("<end>",), 0.7, "MIT License")
    (file,) = offer.variants[0].files
    assert file.sha256 == hub.digests["tiny-F16.gguf"]
    located = await source.locate(file)
    assert (located.size, located.token) == (file.size_bytes, None)


async def test_what_is_missing_or_no_single_file_is_not_found(source: OllamaRegistry) -> None:
    with pytest.raises(NotFound):
        await source.offer(OllamaReference(name="nothing"))
    with pytest.raises(NotFound, match="not one GGUF file"):
        await source.offer(OllamaReference(name="adapted"))


@pytest.mark.parametrize(
    "digest",
    [
        "",
        "sha256:",
        "sha256:ab",
        "../../../etc/passwd",
        "sha256:" + "A" * 64,
        "sha512:" + "0" * 64,
        "sha256:../" + "0" * 61,
    ],
)
async def test_a_digest_of_any_other_form_is_refused(
    source: OllamaRegistry, hub: LoopbackHub, digest: str
) -> None:
    hub.faults.digest = digest
    with pytest.raises(HubError, match="no SHA-256"):
        await source.offer(REFERENCE)
    assert hub.requests_for("/blobs/") == []


async def test_a_token_is_fetched_where_the_registry_lives(source: OllamaRegistry, hub: LoopbackHub) -> None:
    hub.faults.need_token = "for-this-registry"
    offer = await source.offer(REFERENCE)
    located = await source.locate(offer.variants[0].files[0])
    assert located.token == "for-this-registry"
    assert len(hub.requests_for("/token")) == 1


@pytest.mark.parametrize("realm", ["https://sink.example/token", "http://127.0.0.1:1/token", "file:///x", ""])
async def test_a_realm_elsewhere_gets_nothing(source: OllamaRegistry, hub: LoopbackHub, realm: str) -> None:
    hub.faults = Faults(need_token="x", realm=realm or "nowhere")
    with pytest.raises(HubError, match="another host"):
        await source.offer(REFERENCE)


async def test_a_huge_manifest_is_cut_off(access: Access) -> None:
    body = httpx.ByteStream(b'{"layers":[' + b" " * (5 << 20))
    async with httpx.AsyncClient(
        transport=httpx.MockTransport(lambda request: httpx.Response(200, stream=body))
    ) as client:
        with pytest.raises(LocalLLMError):
            await OllamaRegistry(client, access).offer(REFERENCE)


async def test_a_blob_of_another_size_is_refused(source: OllamaRegistry, hub: LoopbackHub) -> None:
    file = (await source.offer(REFERENCE)).variants[0].files[0]
    hub.faults.body = b"short"
    with pytest.raises(DownloadFailed, match="but serves 5"):
        await source.locate(file)
