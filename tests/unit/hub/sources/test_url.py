from __future__ import annotations

import httpx
import pytest

from localllm.core.errors import DownloadFailed, NotFound
from localllm.hub.references import UrlReference
from localllm.hub.sources.base import Access
from localllm.hub.sources.url import Url
from tests.support.loopback_hub import PORTAL, LoopbackHub


@pytest.fixture
def source(client: httpx.AsyncClient) -> Url:
    return Url(client, Access())


async def test_the_address_a_person_typed_may_be_in_this_network(source: Url, hub: LoopbackHub) -> None:
    offer = await source.offer(UrlReference(f"{hub.url}/files/tiny-F16.gguf"))
    assert (offer.name, offer.variants[0].quant) == ("tiny", "F16")
    (file,) = offer.variants[0].files
    assert (file.size_bytes, file.sha256) == (hub.size_of("tiny-F16.gguf"), None)
    assert (await source.locate(file)).etag == '"v1"'


async def test_all_parts_of_a_split_model_are_found(source: Url, hub: LoopbackHub) -> None:
    url = f"{hub.url}/files/BF16/big-BF16-00002-of-00002.gguf"
    (variant,) = (await source.offer(UrlReference(url))).variants
    assert [file.name for file in variant.files] == [
        "big-BF16-00001-of-00002.gguf",
        "big-BF16-00002-of-00002.gguf",
    ]


async def test_what_is_no_file_is_refused(source: Url, hub: LoopbackHub) -> None:
    with pytest.raises(NotFound):
        await source.offer(UrlReference(f"{hub.url}/files/none.gguf"))
    hub.faults.body = PORTAL
    with pytest.raises(DownloadFailed, match="web page"):
        await source.offer(UrlReference(f"{hub.url}/files/tiny-F16.gguf"))
    hub.faults.body = b""
    offer = await source.offer(UrlReference(f"{hub.url}/files/tiny-F16.gguf"))
    assert offer.variants[0].size_bytes == 0, "refused by the header, which is read next"
