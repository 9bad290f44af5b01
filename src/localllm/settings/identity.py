"""Where the running service is and how it proves itself: what it leaves in the state folder for its clients."""

from __future__ import annotations

import secrets

import msgspec

from localllm.core.control import Identity
from localllm.settings.paths import Paths
from localllm.settings.private import read_private, write_private


def read_identity(paths: Paths) -> Identity | None:
    """What the service that runs (or the last one, if it died) said of itself; None without a readable file."""
    data = read_private(paths.identity_file)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Identity)
    except msgspec.MsgspecError:
        return None


def write_identity(paths: Paths, identity: Identity) -> None:
    write_private(paths.identity_file, msgspec.json.encode(identity))


def remove_identity(paths: Paths) -> None:
    """Called on a clean stop: a file that is left behind means that the service died."""
    paths.identity_file.unlink(missing_ok=True)


def read_admin_key(paths: Paths) -> str | None:
    """The key of the control namespace; None when no service has ever run here."""
    data = read_private(paths.admin_key_file)
    return data.decode("ascii", "replace").strip() if data else None


def ensure_admin_key(paths: Paths) -> str:
    """The admin key, drawn at the first start (256 bits) and kept across restarts."""
    key = read_admin_key(paths)
    if key:
        return key
    key = f"ll-admin-{secrets.token_urlsafe(32)}"
    write_private(paths.admin_key_file, key.encode() + b"\n")
    return key
