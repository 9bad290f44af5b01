"""Ollama's registry, spoken to without Ollama: a manifest lists layers by media type, the model's layer is a GGUF file.

The protocol is that of Docker's registry (distribution spec, manifest v2). Nothing in a manifest is believed before it
has the right form: a digest is ``sha256:`` and 64 hex digits, and a token is asked for only where the registry lives.
"""

from __future__ import annotations

import re
from urllib.parse import urlencode

import httpx
from msgspec import Struct, field

from localllm.core.errors import DownloadFailed, Gated, HubError, NotFound, Offline
from localllm.core.generation import Sampling
from localllm.hub.download.transfer import Located
from localllm.hub.download.wire import (
    check_status,
    content_range,
    fetch_small,
    follow,
    redirect_target,
    same_place,
)
from localllm.hub.references import OllamaReference
from localllm.hub.sources.base import Access, Offer, RemoteFile, Variant, decode_answer

MAX_MANIFEST_BYTES = 4 << 20
MAX_TEXT_BYTES = 1 << 20
MAX_LAYERS = 64

_MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
_LAYER_TYPE = "application/vnd.ollama.image."
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class _Layer(Struct):
    media_type: str = field(name="mediaType")
    digest: str
    size: int

    @property
    def kind(self) -> str:
        return self.media_type.removeprefix(_LAYER_TYPE)

    @property
    def sha256(self) -> str:
        """Hex. Raises HubError for a digest of any other form: it would become part of an address and a path."""
        match = _DIGEST.fullmatch(self.digest)
        if match is None or not 0 <= self.size < 1 << 50:
            raise HubError(f"The registry names a layer {self.digest[:80]!r}, which is no SHA-256 digest.")
        return match[1]


class _Manifest(Struct):
    layers: list[_Layer]
    schema_version: int = field(name="schemaVersion", default=2)


class _Parameters(Struct):
    stop: list[str] | str = []
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None


class _Token(Struct):
    token: str = ""
    access_token: str = ""


class OllamaRegistry:
    """A ``Source`` of ``OllamaReference``."""

    def __init__(self, client: httpx.AsyncClient, access: Access) -> None:
        self._client = client
        self._access = access
        self._tokens: dict[str, str] = {}

    async def offer(self, reference: OllamaReference) -> Offer:
        """Read the manifest and the small layers that say how the model wants to be used."""
        repository = f"{reference.namespace}/{reference.name}"
        base = f"{self._access.ollama}/v2/{repository}"
        body = await self._get(f"{base}/manifests/{reference.tag}", str(reference), MAX_MANIFEST_BYTES)
        manifest = decode_answer(body, _Manifest)
        if len(manifest.layers) > MAX_LAYERS:
            raise HubError(
                f"{reference} claims {len(manifest.layers)} layers; at most {MAX_LAYERS} are believable."
            )
        by_kind: dict[str, list[_Layer]] = {}
        for layer in manifest.layers:
            by_kind.setdefault(layer.kind, []).append(layer)
        if len(by_kind.get("model", ())) != 1 or "adapter" in by_kind:
            raise NotFound(
                f"{reference} is not one GGUF file (an adapter, a cloud model or another format).",
                hint="Run it with Ollama itself, or pull another build of the model.",
            )
        parameters = await self._parameters(by_kind, base)
        stop = (parameters.stop,) if isinstance(parameters.stop, str) else tuple(parameters.stop)
        library = reference.namespace == "library"
        return Offer(
            name=reference.name if library else repository,
            tag=reference.tag,
            origin=f"ollama:{repository}:{reference.tag}",
            variants=(Variant(quant=None, files=(_remote_file(by_kind["model"][0], base, reference.name),)),),
            projectors=tuple(
                _remote_file(layer, base, f"{reference.name}-mmproj")
                for layer in by_kind.get("projector", ())
            ),
            stop=stop[:16],
            sampling=Sampling(
                temperature=parameters.temperature,
                top_k=parameters.top_k,
                top_p=parameters.top_p,
                min_p=parameters.min_p,
                repeat_penalty=parameters.repeat_penalty,
            ),
            licence=await self._licence(by_kind, base),
        )

    async def locate(self, file: RemoteFile) -> Located:
        """The blob itself, or the signed address that it redirects to."""
        self._refuse_offline()
        token = self._tokens.get(_repository(file.url))
        try:
            return await self._locate(file, token)
        except Gated as error:
            if token is None and (fresh := await self._answer_challenge(error, file.url)):
                return await self._locate(file, fresh)
            raise

    async def _locate(self, file: RemoteFile, token: str | None) -> Located:
        async with follow(
            self._client,
            file.url,
            headers={"Range": "bytes=0-0"},
            token=token,
            trusted=self._access.trusted,
            stay=True,
        ) as response:
            here = str(response.request.url)
            if response.has_redirect_location:
                url, size = redirect_target(response, here), file.size_bytes
            else:
                check_status(response, file.name)
                url, size = here, _size_of(response)
        if size != file.size_bytes:
            raise DownloadFailed(
                f"The registry lists {file.name} with {file.size_bytes} bytes, but serves {size}."
            )
        return Located(
            url=url,
            size=size,
            etag=file.sha256,
            token=token if same_place(url, file.url) else None,
            trusted=self._access.trusted,
        )

    async def _parameters(self, by_kind: dict[str, list[_Layer]], base: str) -> _Parameters:
        for layer in by_kind.get("params", ()):
            return decode_answer(await self._small_layer(layer, base), _Parameters)
        return _Parameters()

    async def _licence(self, by_kind: dict[str, list[_Layer]], base: str) -> str | None:
        """The first line of the licence text: its name, mostly."""
        for layer in by_kind.get("license", ()):
            text = (await self._small_layer(layer, base)).decode("utf-8", "replace")
            line = next((line.strip() for line in text.splitlines() if line.strip()), "")
            return line[:80] or None
        return None

    async def _small_layer(self, layer: _Layer, base: str) -> bytes:
        if layer.size > MAX_TEXT_BYTES:
            raise HubError(f"The registry lists {layer.size} bytes of {layer.kind}; that is not believable.")
        return await self._get(f"{base}/blobs/sha256:{layer.sha256}", f"its {layer.kind}", MAX_TEXT_BYTES)

    async def _get(self, url: str, what: str, limit_bytes: int) -> bytes:
        self._refuse_offline()
        token = self._tokens.get(_repository(url))
        try:
            return await self._fetch(url, what, limit_bytes, token)
        except Gated as error:
            if token is None and (fresh := await self._answer_challenge(error, url)):
                return await self._fetch(url, what, limit_bytes, fresh)
            raise

    async def _fetch(self, url: str, what: str, limit_bytes: int, token: str | None) -> bytes:
        body, _ = await fetch_small(
            self._client,
            url,
            what,
            token=token,
            trusted=self._access.trusted,
            limit_bytes=limit_bytes,
            accept=_MANIFEST_TYPE if "/manifests/" in url else "*/*",
        )
        return body

    async def _answer_challenge(self, error: Gated, url: str) -> str | None:
        """A token from the realm that a 401 names; None when it names none.

        Raises:
            HubError: the realm is another host than the registry.
        """
        challenge = str(error.details.get("challenge", ""))
        if not challenge.startswith("Bearer "):
            return None
        figures = dict(_CHALLENGE.findall(challenge))
        realm = figures.get("realm", "")
        if not realm.startswith(("https://", "http://")) or not same_place(realm, self._access.ollama):
            raise HubError(f"The registry sends us to {realm[:120]!r} for a token, which is another host.")
        query = urlencode({name: figures[name] for name in ("service", "scope") if name in figures})
        answer = decode_answer(await self._fetch(f"{realm}?{query}", "a token", MAX_TEXT_BYTES, None), _Token)
        token = answer.token or answer.access_token
        if token:
            self._tokens[_repository(url)] = token
        return token or None

    def _refuse_offline(self) -> None:
        if self._access.offline:
            raise Offline("Sources are switched off by HF_HUB_OFFLINE.", hint="Unset it for the service.")


def _remote_file(layer: _Layer, base: str, name: str) -> RemoteFile:
    digest = layer.sha256
    return RemoteFile(
        source="ollama",
        name=f"{name}.gguf",
        url=f"{base}/blobs/sha256:{digest}",
        size_bytes=layer.size,
        sha256=digest,
    )


def _repository(url: str) -> str:
    return re.split(r"/(?:manifests|blobs)/", url)[0]


def _size_of(response: httpx.Response) -> int:
    if response.status_code == 206:
        return content_range(response.headers)[2] or 0
    length = response.headers.get("content-length", "")
    return int(length) if length.isdigit() else 0
