"""What a model is called: one grammar, for every command, the port and the manifests.

::

    name      = part { "/" part } [ ":" tag ]
    part, tag = letters, digits, ".", "_", "-"     (a part begins with a letter or digit; at most 160 characters in all)

``tag`` is the quantisation (``gemma3-270m:Q4_K_M``) or, for a file whose quantisation is unknown, any word. Names
differ when they differ in more than the case of their letters, so that they survive file systems that fold it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from localllm.core.errors import BadName

MAX_NAME_LENGTH = 160

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(rf"(?P<base>{_PART}(?:/{_PART})*)(?::(?P<tag>{_PART}))?")
_QUANT = re.compile(
    r"(?:UD-)?(?:I?Q[1-8](?:_(?:K|[01]|XXS|XS|S|M|NL))(?:_(?:XXS|XS|S|M|L|XL))?|T?Q[12]_0|[BF]F?(?:16|32)|MXFP4(?:_MOE)?|NVFP4)",
    re.IGNORECASE,
)
_SHARD = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)


class ModelName(Struct, frozen=True):
    """A name taken apart: ``str()`` puts it together again."""

    base: str
    tag: str | None = None

    def __str__(self) -> str:
        return self.base if self.tag is None else f"{self.base}:{self.tag}"

    @property
    def key(self) -> str:
        """What two names are compared by."""
        return str(self).lower()


class Shard(Struct, frozen=True):
    """``prefix-00002-of-00003.gguf`` taken apart; ``number`` counts from 1."""

    prefix: str
    number: int
    count: int

    def file_name(self, number: int) -> str:
        return f"{self.prefix}-{number:05d}-of-{self.count:05d}.gguf"


def parse_name(text: str) -> ModelName:
    """Raises BadName, saying what a name looks like; nothing is trimmed or corrected."""
    match = _NAME.fullmatch(text)
    if match is None or len(text) > MAX_NAME_LENGTH or ".." in text:
        shown = text if len(text) <= MAX_NAME_LENGTH else text[:40] + "…"
        raise BadName(
            f"{shown!r} is not a model name.",
            hint="A name is letters, digits, '.', '_', '-' and '/', then ':' and the quantisation: gemma3-270m:Q4_K_M",
            param="model",
        )
    return ModelName(match["base"], match["tag"])


def parse_shard(file_name: str) -> Shard | None:
    """The place of a file in a split set, None when its name does not say so."""
    match = _SHARD.fullmatch(file_name)
    if match is None:
        return None
    number, count = int(match["number"]), int(match["count"])
    return Shard(match["prefix"], number, count) if 1 <= number <= count else None


def base_of_file(file_name: str) -> str:
    """The model part of a GGUF's file name, lower case: without suffix, shard number and quantisation.

    ``Qwen3-8B-UD-Q4_K_XL-00001-of-00002.gguf`` → ``qwen3-8b``. Characters that a name cannot have become ``-``.
    """
    shard = parse_shard(file_name)
    stem = shard.prefix if shard else re.sub(r"\.gguf$", "", file_name, flags=re.IGNORECASE)
    head = re.match(rf"(?P<base>.+?)[-._](?P<tag>{_QUANT.pattern})$", stem, re.IGNORECASE)
    base = (head["base"] if head else stem).lower()
    base = re.sub(r"[^a-z0-9._-]+", "-", base).strip("-._")
    return re.sub(r"\.{2,}", ".", base) or "model"


def quant_of_file(file_name: str) -> str | None:
    """The quantisation that a file name claims, upper case; the header's own word is better where it has one."""
    shard = parse_shard(file_name)
    stem = shard.prefix if shard else re.sub(r"\.gguf$", "", file_name, flags=re.IGNORECASE)
    tail = re.search(rf"(?:^|[-._])(?P<tag>{_QUANT.pattern})$", stem, re.IGNORECASE)
    return tail["tag"].upper() if tail else None


def near_names(asked: str, names: Iterable[str], *, limit: int = 3) -> Sequence[str]:
    """Names that ``asked`` may have meant, best first: those that begin like it, then those spelt like it."""
    by_key = {name.lower(): name for name in names}
    wanted = asked.lower()
    base = wanted.partition(":")[0]
    bases = {key: key.partition(":")[0] for key in by_key}
    begun = [key for key in by_key if base and (key.startswith(base) or base.startswith(bases[key]))]

    def likeness(key: str) -> float:
        """Of the whole name, or of the beginning that is as long as what was typed: ``gema`` means gemma3-270m."""
        begins = bases[key][: len(base) + 1]
        return max(
            _ratio(wanted, key), _ratio(base, bases[key]), _ratio(base, begins) if len(base) > 2 else 0.0
        )

    spelt = sorted((key for key in by_key if likeness(key) >= 0.65), key=likeness, reverse=True)
    return tuple(by_key[key] for key in dict.fromkeys((*begun, *spelt)))[:limit]


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(a=one, b=other).ratio()
