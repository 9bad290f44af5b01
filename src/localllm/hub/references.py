"""What can be pulled, and how it is written: one grammar for the command line, the terminal app and the service.

::

    reference    = url | path | hugging-face | ollama | catalogue
    url          = "https://" … | "http://" …      (a page of huggingface.co is read as the repository it shows)
    path         = begins with "/", "./", "../" or "~", or ends in ".gguf" and has no ":"
    hugging-face = [ "hf.co/" | "huggingface.co/" ] org "/" repo [ "@" revision ] [ ":" ( quant | file ".gguf" ) ]
    ollama       = "ollama:" [ namespace "/" ] name [ ":" tag ]
    catalogue    = name [ ":" tag ]                (tag: a size, a quantisation, or both: qwen3:8b:Q5_K_M)

Nothing is trimmed, corrected or guessed: what does not follow the grammar is refused, saying what would. File names
that a hub tells us pass ``checked_file_name``, since they become names on this disk.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from localllm.core.errors import BadName

MAX_REFERENCE_LENGTH = 1_000
MAX_FILE_NAME_LENGTH = 200
MAX_FOLDERS = 8

_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?"
_HUGGING_FACE = re.compile(
    rf"(?:(?:hf\.co|huggingface\.co)/)?(?P<org>{_WORD})/(?P<repo>{_WORD})"
    rf"(?:@(?P<revision>{_WORD}(?:/{_WORD})*))?(?::(?P<choice>[^:]+))?"
)
_OLLAMA = re.compile(rf"ollama:(?:(?P<namespace>{_WORD})/)?(?P<name>{_WORD})(?::(?P<tag>{_WORD}))?")
_CATALOGUE = re.compile(rf"(?P<name>{_WORD})(?P<tags>(?::{_WORD}){{0,2}})")
_PAGE = re.compile(
    r"/(?P<org>[^/]+)/(?P<repo>[^/]+)(?:/(?:tree|blob|resolve)/(?P<revision>[^/]+)(?:/(?P<file>.+))?)?/?"
)
_PAGE_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
# Device names that Windows opens whatever their suffix.
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)


class CatalogueReference(Struct, frozen=True, tag="catalogue"):
    """A curated model; what each of ``tags`` means, a size or a quantisation, the catalogue knows."""

    name: str
    tags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ":".join((self.name, *self.tags))


class HuggingFaceReference(Struct, frozen=True, kw_only=True, tag="hugging_face"):
    """A repository; ``choice`` is a quantisation or the path of a file in it, None = ask the planner."""

    org: str
    repo: str
    revision: str | None = None
    choice: str | None = None

    @property
    def repository(self) -> str:
        return f"{self.org}/{self.repo}"

    @property
    def file(self) -> str | None:
        return self.choice if self.choice and self.choice.lower().endswith(".gguf") else None

    @property
    def quant(self) -> str | None:
        return None if self.file else self.choice

    def __str__(self) -> str:
        at = f"@{self.revision}" if self.revision else ""
        return f"hf.co/{self.repository}{at}" + (f":{self.choice}" if self.choice else "")


class OllamaReference(Struct, frozen=True, kw_only=True, tag="ollama"):
    """A model of Ollama's registry."""

    namespace: str = "library"
    name: str
    tag: str = "latest"

    def __str__(self) -> str:
        space = "" if self.namespace == "library" else f"{self.namespace}/"
        return f"ollama:{space}{self.name}:{self.tag}"


class UrlReference(Struct, frozen=True, tag="url"):
    """A GGUF file anywhere on the web; ``file`` is the last part of its path."""

    url: str

    @property
    def file(self) -> str:
        return unquote(urlsplit(self.url).path.rpartition("/")[2])

    def __str__(self) -> str:
        return self.url


class PathReference(Struct, frozen=True, tag="path"):
    """A file on this machine: nothing to pull, it is imported."""

    path: str

    def __str__(self) -> str:
        return self.path


Reference = CatalogueReference | HuggingFaceReference | OllamaReference | UrlReference | PathReference


def parse_reference(text: str) -> Reference:
    """What ``text`` refers to.

    Raises:
        BadName: it follows no rule of the grammar; the hint shows one of each.
    """
    if not text or len(text) > MAX_REFERENCE_LENGTH or _has_odd_characters(text):
        raise _refused(text)
    if text.startswith(("https://", "http://")):
        return _parse_url(text)
    if text.startswith(("/", "./", "../", "~")) or (text.lower().endswith(".gguf") and ":" not in text):
        return PathReference(text)
    if ".." in text:
        raise _refused(text)
    if match := _OLLAMA.fullmatch(text):
        return OllamaReference(
            namespace=match["namespace"] or "library", name=match["name"], tag=match["tag"] or "latest"
        )
    if match := _HUGGING_FACE.fullmatch(text):
        return _hugging_face(match["org"], match["repo"], match["revision"], match["choice"])
    if match := _CATALOGUE.fullmatch(text):
        return CatalogueReference(match["name"], tuple(match["tags"].split(":")[1:]))
    raise _refused(text)


def checked_file_name(name: str) -> str:
    """``name`` if it can safely be a file's name, or a path inside a repository, here.

    Raises:
        BadName: it is refused, not mended: a hub that sends such names is wrong about other things too.
    """
    parts = name.split("/")
    odd = (
        not name
        or len(name) > MAX_FILE_NAME_LENGTH * 2
        or len(parts) > MAX_FOLDERS
        or _has_odd_characters(name)
        or any(not _plain_part(part) for part in parts)
    )
    if odd:
        raise BadName(
            f"{name[:80]!r} is not a file name that localllm accepts from a source.",
            hint="Names are relative, without '..', backslashes, colons, control characters or a leading dot or dash.",
        )
    return name


def _plain_part(part: str) -> bool:
    return (
        0 < len(part.encode()) <= MAX_FILE_NAME_LENGTH
        and part[0] not in ".- "
        and part[-1] not in ". "
        and not any(character in '\\:*?"<>|' for character in part)
        and not _RESERVED.fullmatch(part)
    )


def _has_odd_characters(text: str) -> bool:
    """Control, format (direction overrides, joiners), surrogate and private characters, and line separators."""
    return any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") for character in text)


def _parse_url(text: str) -> Reference:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise _refused(text) from error
    if not host or parts.username is not None or parts.password is not None or " " in text:
        raise _refused(text)
    if host in _PAGE_HOSTS:
        match = _PAGE.fullmatch(unquote(parts.path))
        if match is None or ".." in parts.path:
            raise _refused(text)
        revision = match["revision"] if match["revision"] != "main" else None
        return _hugging_face(match["org"], match["repo"], revision, match["file"])
    reference = UrlReference(text)
    if not reference.file.lower().endswith(".gguf"):
        raise BadName(
            f"{text[:200]!r} does not lead to a .gguf file.",
            hint="Give the address of the file itself, or of a repository at huggingface.co.",
            param="model",
        )
    checked_file_name(reference.file)
    return reference


def _hugging_face(org: str, repo: str, revision: str | None, choice: str | None) -> HuggingFaceReference:
    words = re.fullmatch(_WORD, org) and re.fullmatch(_WORD, repo)
    if not words or ".." in f"{org}/{repo}/{revision}" or org.lower() in _PAGE_HOSTS:
        raise _refused(f"{org}/{repo}")
    if choice is not None and choice.lower().endswith(".gguf"):
        checked_file_name(choice)
    elif choice is not None and not re.fullmatch(_WORD, choice):
        raise _refused(f"{org}/{repo}:{choice}")
    return HuggingFaceReference(org=org, repo=repo, revision=revision, choice=choice)


def _refused(text: str) -> BadName:
    shown = text if len(text) <= 200 else text[:80] + "…"
    return BadName(
        f"{shown!r} names nothing that can be pulled.",
        hint="Like qwen3:8b, hf.co/bartowski/Qwen_Qwen3-8B-GGUF:Q4_K_M, ollama:llama3.2, or the https:// address of a"
        " .gguf file.",
        param="model",
    )
