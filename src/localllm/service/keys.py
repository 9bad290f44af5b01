"""Named keys of the port: created and revoked by their owner, hashed at rest, each with rules of its own.

A key is 256 random bits, so a plain SHA-256 of it cannot be guessed back. The file is private and small, read once and
written whole. A revoked key stays on the list: without it, revoking the last key would open the port again.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from localllm.core.errors import BadRequest, Conflict, NotFound, StoreCorrupt
from localllm.core.gateway import KeyCreated, KeyInfo, KeyRequest
from localllm.settings.private import read_private, secure_folder, write_private

PREFIX = "sk-localllm-"
MAX_KEYS = 1000
MAX_FILE_BYTES = 1 << 20  # what read_private reads
_SHOWN = 4
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}")


class _Stored(Struct, frozen=True, kw_only=True):
    hash: str
    info: KeyInfo


class Keys:
    """The keys in ``path``, which is created with the first of them.

    Raises:
        StoreCorrupt: the file is there and is not ours. Opening the port instead would be the worse mistake.
    """

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._now = now
        self._stored = _read(path)
        self._by_hash = {each.hash: each.info for each in self._stored}

    @property
    def required(self) -> bool:
        """Whether the port is closed to those without a key: as soon as there has been one."""
        return bool(self._stored)

    def find(self, key: str) -> KeyInfo | None:
        """The key's entry; None when it is not known or was revoked."""
        info = self._by_hash.get(_hash(key))
        return info if info is not None and info.revoked_at is None else None

    def all(self) -> tuple[KeyInfo, ...]:
        return tuple(each.info for each in self._stored)

    def create(self, request: KeyRequest) -> KeyCreated:
        """Raises Conflict when the name is taken, BadRequest for what is no name or no regular expression."""
        if not _NAME.fullmatch(request.name):
            raise BadRequest(
                f"{request.name[:64]!r} cannot be the name of a key.",
                hint="Use at most 64 letters, digits, '_', '.' and '-', the first a letter or digit.",
                param="name",
            )
        if any(each.info.name == request.name for each in self._stored):
            raise Conflict(f"There is a key named {request.name!r} already.", hint="localllm keys list")
        if len(self._stored) >= MAX_KEYS:
            raise Conflict(f"There are {MAX_KEYS} keys already.", hint="localllm keys revoke NAME --forget")
        for index, pattern in enumerate(request.rules.blocked_patterns or ()):
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                raise BadRequest(
                    f"{pattern!r} is not a regular expression: {error}.",
                    param=f"rules.blocked_patterns[{index}]",
                ) from error
        key = PREFIX + secrets.token_urlsafe(32)
        info = KeyInfo(
            name=request.name, ends_with=key[-_SHOWN:], created_at=self._now(), rules=request.rules
        )
        self._write([*self._stored, _Stored(hash=_hash(key), info=info)])
        return KeyCreated(key=key, info=info)

    def revoke(self, name: str, *, forget: bool = False) -> None:
        """The key is no longer accepted; ``forget`` takes it off the list too. Raises NotFound."""
        kept = [each for each in self._stored if each.info.name != name]
        if len(kept) == len(self._stored):
            raise NotFound(f"There is no key named {name!r}.", hint="See what there is: localllm keys list")
        if forget:
            self._write(kept)
            return
        self._write(
            [_revoked(each, self._now()) if each.info.name == name else each for each in self._stored]
        )

    def _write(self, stored: list[_Stored]) -> None:
        data = msgspec.json.format(msgspec.json.encode(stored), indent=1)
        if len(data) > MAX_FILE_BYTES:
            raise Conflict("The keys' rules are too long to be kept.", hint="Use fewer or shorter patterns.")
        secure_folder(self._path.parent)
        write_private(self._path, data)
        self._stored = stored
        self._by_hash = {each.hash: each.info for each in stored}


def _read(path: Path) -> list[_Stored]:
    data = read_private(path)
    if data is None:
        return []
    try:
        return msgspec.json.decode(data, type=list[_Stored])
    except msgspec.DecodeError as error:
        raise StoreCorrupt(
            f"The keys in {path} cannot be read.", hint="Restore the file, or move it away to begin anew."
        ) from error


def _revoked(stored: _Stored, now: float) -> _Stored:
    if stored.info.revoked_at is not None:
        return stored
    return structs.replace(stored, info=structs.replace(stored.info, revoked_at=now))


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
