"""What every source answers: an ``Offer`` (which files make which quantisation) and, per file, where its bytes are.

Everything here is plain data that can be written down: a pull that was interrupted goes on from it after a restart of
the service, without asking the source again what it meant.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol, TypeVar

import msgspec
from msgspec import Struct

from localllm.core.errors import DownloadFailed
from localllm.core.generation import Sampling
from localllm.hub.download.transfer import Located
from localllm.hub.references import HuggingFaceReference, OllamaReference, UrlReference

SourceName = Literal["hugging_face", "ollama", "url"]

T = TypeVar("T")
R_contra = TypeVar("R_contra", HuggingFaceReference, OllamaReference, UrlReference, contravariant=True)


class RemoteFile(Struct, frozen=True, kw_only=True):
    """``url`` is the lasting address, not a signed one. ``sha256`` (hex) None: the source does not say."""

    source: SourceName
    name: str
    url: str
    size_bytes: int
    sha256: str | None = None


class Variant(Struct, frozen=True, kw_only=True):
    """One quantisation: its file, or the parts of a split one in order. ``quant`` None: the names do not say."""

    quant: str | None
    files: tuple[RemoteFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class Offer(Struct, frozen=True, kw_only=True):
    """What a source has under a reference.

    ``name`` is the base of the local name and ``tag`` the rest of it (None: the quantisation); ``origin`` says where
    it is from, with the commit where there is one.
    ``projectors`` are vision projectors, the best first. Template, stop, sampling and licence are set where the
    source keeps them beside the file.
    """

    name: str
    tag: str | None = None
    origin: str
    variants: tuple[Variant, ...]
    projectors: tuple[RemoteFile, ...] = ()
    chat_template: str | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    licence: str | None = None


class Source(Protocol[R_contra]):
    """One kind of place. Methods raise NotFound, Gated, Offline, RateLimited, DownloadFailed or BadName."""

    async def offer(self, reference: R_contra) -> Offer:
        """List what is there. No weights are fetched."""
        ...

    async def locate(self, file: RemoteFile) -> Located:
        """Where the bytes of ``file`` are now."""
        ...


class Access(Struct, frozen=True, kw_only=True):
    """What the environment and the settings say about reaching sources.

    ``trusted`` are origins (``host:port``) that may lie inside this network: the mirrors a person has configured.
    """

    hugging_face: str = "https://huggingface.co"
    hugging_face_token: str | None = None
    ollama: str = "https://registry.ollama.ai"
    offline: bool = False
    trusted: Collection[str] = ()


def decode_answer(body: bytes, shape: type[T]) -> T:
    """A source's JSON as ``shape``. Raises DownloadFailed when it is anything else."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DownloadFailed(
            f"The source's answer was not understood: {error}.",
            hint="Perhaps it is the login page of a network, or the configured address leads to something else.",
        ) from error
