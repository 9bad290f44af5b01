"""A GGUF file at an address: its size and identity are what the host says in answer to a range of one byte."""

from __future__ import annotations

from urllib.parse import quote, urlsplit, urlunsplit

import httpx

from localllm.core.errors import DownloadFailed
from localllm.hub.download.transfer import Located
from localllm.hub.download.wire import check_status, content_range, follow, origin
from localllm.hub.names import base_of_file, parse_shard, quant_of_file
from localllm.hub.references import UrlReference
from localllm.hub.sources.base import Access, Offer, RemoteFile, Variant


class Url:
    """A ``Source`` of ``UrlReference``. The host that a person typed may lie in this network; where it redirects may not."""

    def __init__(self, client: httpx.AsyncClient, access: Access) -> None:
        self._client = client
        self._access = access

    async def offer(self, reference: UrlReference) -> Offer:
        """The file, or all parts when it is one of a split set."""
        name = reference.file
        shard = parse_shard(name)
        names = [name] if shard is None else [shard.file_name(n) for n in range(1, shard.count + 1)]
        files = [await self._remote_file(_sibling(reference.url, part), part) for part in names]
        return Offer(
            name=base_of_file(name),
            origin=reference.url.partition("?")[0],
            variants=(Variant(quant=quant_of_file(name), files=tuple(files)),),
        )

    async def locate(self, file: RemoteFile) -> Located:
        located = await self._ask(file.url, file.name)
        if located.size != file.size_bytes:
            raise DownloadFailed(f"{file.name} has another size than before.", hint="Pull it anew.")
        return located

    async def _remote_file(self, url: str, name: str) -> RemoteFile:
        located = await self._ask(url, name)
        return RemoteFile(source="url", name=name, url=url, size_bytes=located.size)

    async def _ask(self, url: str, name: str) -> Located:
        trusted = frozenset((*self._access.trusted, origin(url)))
        async with follow(
            self._client, url, headers={"Range": "bytes=0-0"}, token=None, trusted=trusted
        ) as response:
            check_status(response, name)
            kind = response.headers.get("content-type", "")
            if kind.startswith("text/html"):
                raise DownloadFailed(
                    f"{origin(url)} sent a web page instead of {name}.",
                    hint="Perhaps the login page of a network: open the address in a browser.",
                )
            size = _size_of(response)
            etag = response.headers.get("etag") or response.headers.get("last-modified")
        if size is None:
            raise DownloadFailed(f"{origin(url)} does not say how large {name} is.")
        return Located(url=url, size=size, etag=etag, trusted=trusted)


def _size_of(response: httpx.Response) -> int | None:
    if response.status_code == 206:
        return content_range(response.headers)[2]
    length = response.headers.get("content-length", "")
    return int(length) if length.isdigit() else None


def _sibling(url: str, name: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rpartition("/")[0] + "/" + quote(name)))
