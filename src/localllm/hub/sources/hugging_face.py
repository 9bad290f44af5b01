"""Hugging Face: listing a repository at a pinned commit, and resolving its files to where they are served.

The API and its headers are as documented for the Hub and as ``huggingface_hub`` uses them: ``/api/models/…``,
``/resolve/``, ``X-Linked-Size``, ``X-Linked-Etag`` (the SHA-256 of a file in LFS or Xet), ``X-Error-Code``. A mirror set
by HF_ENDPOINT speaks the same.
"""

from __future__ import annotations

import re
from urllib.parse import quote, urlencode, urljoin

import httpx
from msgspec import Struct, field

from localllm.core.control import SearchHit
from localllm.core.errors import DownloadFailed, Gated, HubError, NotFound, Offline
from localllm.hub.download.transfer import Located
from localllm.hub.download.wire import check_status, fetch_small, follow, redirect_target, same_place
from localllm.hub.references import HuggingFaceReference, checked_file_name
from localllm.hub.sources.base import Access, Offer, RemoteFile, decode_answer
from localllm.hub.sources.files import projectors_of, variants_of

MAX_LISTING_BYTES = 8 << 20
MAX_PAGES = 50
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="next"')
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class _Card(Struct):
    license: str | list[str] | None = None


class _Model(Struct):
    sha: str
    gated: bool | str = False
    card: _Card | None = field(default=None, name="cardData")


class _Lfs(Struct):
    oid: str
    size: int


class _Entry(Struct):
    type: str
    path: str
    size: int = 0
    lfs: _Lfs | None = None


class _Hit(Struct):
    id: str
    downloads: int = 0
    likes: int = 0
    gated: bool | str = False
    modified: str | None = field(default=None, name="lastModified")


class HuggingFace:
    """A ``Source`` of ``HuggingFaceReference``."""

    def __init__(self, client: httpx.AsyncClient, access: Access) -> None:
        self._client = client
        self._access = access

    async def offer(self, reference: HuggingFaceReference) -> Offer:
        """List the repository's GGUF files at the commit that its revision means now."""
        repository = reference.repository
        model = await self._model(repository, reference.revision or "main")
        base = f"{self._access.hugging_face}/{repository}/resolve/{model.sha}"
        files = [
            _remote_file(entry, base)
            for entry in await self._tree(repository, model.sha)
            if entry.type == "file" and entry.path.lower().endswith(".gguf")
        ]
        variants = variants_of(files)
        if not variants:
            raise NotFound(
                f"{repository} has no GGUF model.",
                hint=f"Look for a converted one: localllm search {reference.repo}",
            )
        licence = model.card.license if model.card else None
        return Offer(
            name=repository,
            origin=f"hf.co/{repository}@{model.sha}",
            variants=variants,
            projectors=projectors_of(files),
            licence=", ".join(licence) if isinstance(licence, list) else licence,
        )

    async def locate(self, file: RemoteFile) -> Located:
        """Ask for the file's address: itself, or a signed one that works for a while."""
        self._refuse_offline()
        access = self._access
        async with follow(
            self._client,
            file.url,
            headers={},
            token=access.hugging_face_token,
            trusted=access.trusted,
            method="HEAD",
            stay=True,
        ) as response:
            redirected = response.has_redirect_location
            if not redirected:
                _check(response, file.name)
            headers = response.headers
            url = (
                redirect_target(response, str(response.request.url))
                if redirected
                else str(response.request.url)
            )
        # a redirect's own length is that of its page, not of the file
        size = headers.get("x-linked-size") or (None if redirected else headers.get("content-length", ""))
        if size is not None and (not size.isdigit() or int(size) != file.size_bytes):
            raise DownloadFailed(
                f"The source lists {file.name} with {file.size_bytes} bytes, but serves {size or 'an unknown number'}.",
                hint="Pull again later; if it stays so, the source is broken.",
            )
        return Located(
            url=url,
            size=file.size_bytes,
            etag=file.sha256 or headers.get("x-linked-etag") or headers.get("etag"),
            token=access.hugging_face_token if same_place(url, file.url) else None,
            trusted=access.trusted,
        )

    async def search(self, text: str, *, limit: int = 20) -> tuple[SearchHit, ...]:
        """Repositories with GGUF files that match, the most downloaded first."""
        query = urlencode(
            {"search": text, "filter": "gguf", "sort": "downloads", "direction": -1, "limit": limit}
        )
        body, _ = await self._get(
            f"{self._access.hugging_face}/api/models?{query}", f"The search for {text!r}"
        )
        hits = decode_answer(body, list[_Hit])
        return tuple(
            SearchHit(
                reference=f"hf.co/{hit.id}",
                title=hit.id,
                source="Hugging Face",
                downloads=hit.downloads,
                likes=hit.likes,
                gated=bool(hit.gated),
                updated_at=hit.modified,
            )
            for hit in hits[:limit]
        )

    async def _model(self, repository: str, revision: str) -> _Model:
        url = f"{self._access.hugging_face}/api/models/{repository}/revision/{quote(revision, safe='')}"
        body, _ = await self._get(url, repository)
        model = decode_answer(body, _Model)
        if not _COMMIT.fullmatch(model.sha):
            raise HubError(f"The hub names {model.sha[:80]!r} as a commit.")
        return model

    async def _tree(self, repository: str, commit: str) -> list[_Entry]:
        url: str | None = (
            f"{self._access.hugging_face}/api/models/{repository}/tree/{commit}?recursive=true&expand=false"
        )
        entries: list[_Entry] = []
        for _ in range(MAX_PAGES):
            if url is None:
                return entries
            body, headers = await self._get(url, repository)
            entries += decode_answer(body, list[_Entry])
            url = _next_page(headers.get("link", ""), url)
        raise HubError(f"The list of {repository}'s files does not end.")

    async def _get(self, url: str, what: str) -> tuple[bytes, httpx.Headers]:
        self._refuse_offline()
        return await fetch_small(
            self._client,
            url,
            what,
            token=self._access.hugging_face_token,
            trusted=self._access.trusted,
            limit_bytes=MAX_LISTING_BYTES,
        )

    def _refuse_offline(self) -> None:
        if self._access.offline:
            raise Offline(
                "Hugging Face is switched off by HF_HUB_OFFLINE.",
                hint="Unset it for the service to go online.",
            )


def _remote_file(entry: _Entry, base: str) -> RemoteFile:
    name = checked_file_name(entry.path)
    size = entry.lfs.size if entry.lfs else entry.size
    digest = entry.lfs.oid.removeprefix("sha256:") if entry.lfs else None
    if size < 0 or size > 1 << 50 or (digest is not None and not _SHA256.fullmatch(digest)):
        raise HubError(f"The hub lists {name} with {size} bytes and the digest {str(digest)[:80]!r}.")
    return RemoteFile(
        source="hugging_face", name=name, url=f"{base}/{quote(name)}", size_bytes=size, sha256=digest
    )


def _next_page(link: str, here: str) -> str | None:
    match = _NEXT.search(link)
    if match is None:
        return None
    target = str(urljoin(here, match[1]))
    if not same_place(target, here):
        raise HubError(f"The hub continues its list at {target[:120]!r}, which is another host.")
    return target


def _check(response: httpx.Response, name: str) -> None:
    code = response.headers.get("x-error-code", "")
    if code == "GatedRepo":
        raise Gated(
            f"{name} is gated: its makers want their terms accepted first.",
            hint="Accept them on the model's page, then set HF_TOKEN to a token of that account.",
        )
    if code in ("EntryNotFound", "RevisionNotFound"):
        raise NotFound(f"{name} is not there any more.", hint="Pull the model by its name again.")
    check_status(response, name)
