"""Personal data in text: finding it, putting placeholders in its place, and putting it back into a stream.

The model sees ``[EMAIL_1]``; the client sees the address. The same value gets the same placeholder within a request, so
the model can still tell people apart. What has a checksum is believed only when it is right; what has none must look
the part. Nothing is kept after the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from enum import StrEnum

from msgspec import Struct

from localllm.service.gateway.national_ids import NATIONAL_IDS, luhn


class Kind(StrEnum):
    EMAIL = "EMAIL"
    PHONE = "PHONE"
    CARD = "CARD"
    IBAN = "IBAN"
    NATIONAL_ID = "ID"
    SECRET = "SECRET"


class Finding(Struct, frozen=True):
    """Characters [start, end) of the text are personal data of this kind."""

    kind: Kind
    start: int
    end: int


_SEPARATORS = re.compile(r"[\s.\-]")
_EMAIL = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._%+\-]*@(?:[A-Za-z0-9](?:[A-Za-z0-9\-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,24}(?![A-Za-z0-9])"
)
_CARD = re.compile(
    r"(?<![\w.\-])(?:[2-6]\d{12,18}"
    r"|[2-6]\d{3}([ \-])\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?"
    r"|3\d{3}([ \-])\d{6}\2\d{4,5})(?![\w\-])",
    re.ASCII,
)
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{1,4}){3,9}(?![A-Za-z0-9])")
_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]{8,}"
    r"|\b(?:sk|pk|rk)[-_](?:live_|test_|proj-|ant-|or-v1-)?[A-Za-z0-9_\-]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{22,}|\bglpat-[\w\-]{20,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w\-]{35}|\bhf_[A-Za-z0-9]{30,}|\bnpm_[A-Za-z0-9]{36}"
    r"|\bxox[abposr]-[A-Za-z0-9\-]{10,}",
    re.DOTALL | re.ASCII,
)
_PHONE = re.compile(
    r"(?<![\w.\-/+:#])(?:"
    r"\+[1-9]\d{0,2}[ .\-/]?(?:\(0?\d{1,5}\)[ .\-/]?)?\d{1,5}(?:[ .\-/]?\d{2,5}){1,5}"  # international
    r"|00[1-9]\d{0,2}[ .\-/]\d{1,5}(?:[ .\-/]?\d{2,5}){1,5}"  # international with 00
    r"|\(0\d{1,5}\)[ .\-/]?\d{2,8}(?:[ .\-/]?\d{1,6}){0,3}"  # German with brackets
    r"|0[1-9]\d{1,4}[ .\-/]\d{3,8}(?:[ .\-/]?\d{1,6}){0,3}"  # German: area code, then the number
    r"|01[5-7]\d{8,9}"  # German mobile in one run
    r"|\(\d{3}\)[ .\-]?\d{3}[ .\-]\d{4}"  # North American with brackets
    r"|(?:1[ .\-])?[2-9]\d{2}[ .\-][2-9]\d{2}[ .\-]\d{4}"  # North American
    r"|1[3-9]\d[ \-]?\d{4}[ \-]?\d{4}"  # Chinese mobile
    r"|0\d{2,3}-\d{7,8}"  # Chinese landline
    r"|400[ \-]?\d{3}[ \-]?\d{4}"  # Chinese service number
    r")(?:[ ]?(?:ext\.?|x|Durchwahl|转)[ ]?\d{1,5})?(?![\w]|[.\-/]\d)",
    re.ASCII,  # a Chinese character beside a number is no part of it
)
_IBAN_LENGTHS = {
    **{"NO": 15, "BE": 16, "DK": 18, "FI": 18, "FO": 18, "GL": 18, "NL": 18, "MK": 19, "SI": 19},
    **{
        "AT": 20,
        "BA": 20,
        "EE": 20,
        "KZ": 20,
        "LT": 20,
        "LU": 20,
        "XK": 20,
        "CH": 21,
        "HR": 21,
        "LI": 21,
        "LV": 21,
    },
    **{"BG": 22, "BH": 22, "CR": 22, "DE": 22, "GB": 22, "GE": 22, "IE": 22, "ME": 22, "RS": 22, "VA": 22},
    **{
        "AE": 23,
        "GI": 23,
        "IL": 23,
        "IQ": 23,
        "TL": 23,
        "AD": 24,
        "CZ": 24,
        "ES": 24,
        "MD": 24,
        "PK": 24,
        "RO": 24,
    },
    **{
        "SA": 24,
        "SE": 24,
        "SK": 24,
        "TN": 24,
        "VG": 24,
        "LY": 25,
        "PT": 25,
        "ST": 25,
        "IS": 26,
        "TR": 26,
        "FR": 27,
    },
    **{
        "GR": 27,
        "IT": 27,
        "MC": 27,
        "MR": 27,
        "SM": 27,
        "AL": 28,
        "AZ": 28,
        "BY": 28,
        "CY": 28,
        "DO": 28,
        "GT": 28,
    },
    **{
        "HU": 28,
        "LB": 28,
        "NI": 28,
        "PL": 28,
        "SV": 28,
        "BR": 29,
        "EG": 29,
        "PS": 29,
        "QA": 29,
        "UA": 29,
        "JO": 30,
    },
    **{"KW": 30, "MU": 30, "MT": 31, "SC": 31, "LC": 32, "RU": 33},
}
"""ISO 13616 registry: characters in all."""

_NATIONAL = tuple(
    (re.compile(rf"(?<![A-Za-z0-9.\-/+]){pattern}(?![A-Za-z0-9]|[.\-/]\d)", re.ASCII), check)
    for pattern, check in NATIONAL_IDS
)


def find(text: str) -> list[Finding]:
    """Every finding, in order, none overlapping; where two claim the same characters the surer and longer one wins."""
    claims: list[Finding] = []
    for kind, spans in (
        (Kind.SECRET, (m.span() for m in _SECRETS.finditer(text))),
        (Kind.EMAIL, (m.span() for m in _EMAIL.finditer(text))),
        (Kind.IBAN, _ibans(text)),
        (Kind.CARD, _cards(text)),
        (Kind.NATIONAL_ID, _national_ids(text)),
        (Kind.PHONE, _phones(text)),
    ):
        for start, end in spans:
            if not any(start < c.end and c.start < end for c in claims):
                claims.append(Finding(kind, start, end))
    return sorted(claims, key=lambda c: c.start)


def _ibans(text: str) -> Iterable[tuple[int, int]]:
    for match in _IBAN.finditer(text):
        wanted = _IBAN_LENGTHS.get(match[0][:2])
        end = _end_of_length(match[0], wanted)
        if end is None:
            continue
        plain = match[0][:end].replace(" ", "")
        moved = plain[4:] + plain[:4]
        if int("".join(str(int(c, 36)) for c in moved)) % 97 == 1:
            yield match.start(), match.start() + end


def _end_of_length(text: str, wanted: int | None) -> int | None:
    """Where ``wanted`` characters other than spaces end; None when there are fewer, or a group goes on."""
    if wanted is None:
        return None
    seen = 0
    for place, char in enumerate(text):
        seen += char != " "
        if seen == wanted:
            after = text[place + 1 : place + 2]
            return place + 1 if after in ("", " ") else None
    return None


def _national_ids(text: str) -> Iterable[tuple[int, int]]:
    for pattern, check in _NATIONAL:
        for match in pattern.finditer(text):
            if check(_SEPARATORS.sub("", match[0])):
                yield match.span()


def _cards(text: str) -> Iterable[tuple[int, int]]:
    for match in _CARD.finditer(text):
        digits = _SEPARATORS.sub("", match[0])
        if 13 <= len(digits) <= 19 and len(set(digits)) > 1 and luhn(digits):
            yield match.span()


def _phones(text: str) -> Iterable[tuple[int, int]]:
    for match in _PHONE.finditer(text):
        digits = sum(c.isdigit() for c in match[0])
        if 7 <= digits <= 17 and not _DATE.fullmatch(match[0]):
            yield match.span()


_DATE = re.compile(r"\d{1,2}[ ./\-]\d{1,2}[ ./\-]\d{2,4}|\d{4}[ ./\-]\d{1,2}[ ./\-]\d{1,2}")


class Masker:
    """The placeholders of one request. Give it every text that goes to the model, then ask it for restorers."""

    def __init__(self, finder: Callable[[str], list[Finding]] = find) -> None:
        self._find = finder
        self._by_value: dict[tuple[Kind, str], str] = {}
        self._originals: dict[str, str] = {}
        self._taken: set[str] = set()

    @property
    def counts(self) -> dict[str, int]:
        """How many different values of each kind were masked: for the log, which never sees the values."""
        found: dict[str, int] = {}
        for kind, _ in self._by_value:
            found[kind.value] = found.get(kind.value, 0) + 1
        return found

    def reserve(self, text: str) -> None:
        """Placeholders that the person wrote literally are never given out; call it with every text before masking."""
        self._taken.update(_PLACEHOLDER.findall(text))

    def mask(self, text: str) -> str:
        pieces, at = [], 0
        for finding in self._find(text):
            pieces += [
                text[at : finding.start],
                self._placeholder(finding.kind, text[finding.start : finding.end]),
            ]
            at = finding.end
        return "".join([*pieces, text[at:]])

    def restorer(self, *, in_json: bool = False) -> Restorer:
        """A fresh one per stream; ``in_json`` escapes what it puts into a JSON string (tool-call arguments)."""
        return Restorer(self._originals, in_json=in_json)

    def _placeholder(self, kind: Kind, value: str) -> str:
        key = (kind, value)
        if key not in self._by_value:
            number = 1
            while (placeholder := f"[{kind.value}_{number}]") in self._taken:
                number += 1
            self._taken.add(placeholder)
            self._by_value[key] = placeholder
            self._originals[placeholder] = value
        return self._by_value[key]


_PLACEHOLDER = re.compile(r"\[(?:EMAIL|PHONE|CARD|IBAN|ID|SECRET)_\d{1,6}\]")
_BEGUN = re.compile(r"\[(?:[A-Z]{0,6}|[A-Z]{2,6}_\d{0,6})\Z")


class Restorer:
    """Puts the originals back into a stream that may be cut anywhere; holds back only what may still be a placeholder."""

    def __init__(self, originals: dict[str, str], *, in_json: bool) -> None:
        self._originals = originals
        self._in_json = in_json
        self._held = ""

    def feed(self, text: str) -> str:
        """The next text, restored, less what must wait for more."""
        if not self._originals:
            return text
        text = self._held + text
        begun = _BEGUN.search(text)
        cut = begun.start() if begun else len(text)
        self._held = text[cut:]
        return _PLACEHOLDER.sub(self._original, text[:cut])

    def finish(self) -> str:
        """What was held back and is no placeholder after all."""
        rest, self._held = self._held, ""
        return rest

    def _original(self, match: re.Match[str]) -> str:
        value = self._originals.get(match[0], match[0])
        return json.dumps(value, ensure_ascii=False)[1:-1] if self._in_json else value
