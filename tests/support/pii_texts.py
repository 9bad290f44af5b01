"""500 made-up texts in English, German and Chinese, with personal data whose places are known, and look-alikes that are none.

Numbers are drawn and given right check digits here, by other code than the detector's.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple


class Labelled(NamedTuple):
    """``spans`` are (kind, start, end) of the personal data in ``text``."""

    text: str
    spans: tuple[tuple[str, int, int], ...]


def made_up_texts(count: int = 500, seed: int = 7) -> list[Labelled]:
    rng = random.Random(seed)
    return [_text(rng, ("en", "de", "zh")[n % 3]) for n in range(count)]


SENTENCES = {
    "en": [
        "Please write to {} before Friday.",
        "My number is {}, call after six.",
        "The reference is {} and the sum is 1,204.50.",
        "Customer record: {}.",
        "Could you check {} for me?",
        "He gave {}; she gave {}.",
        "Contact: {} or {}",
        "It was {} that was used for the payment.",
    ],
    "de": [
        "Bitte schreiben Sie an {} bis Freitag.",
        "Meine Nummer ist {}, bitte abends anrufen.",
        "Die Angabe lautet {} und der Betrag 1.204,50 Euro.",
        "Kundendaten: {}.",
        "Können Sie {} prüfen?",
        "Er nannte {}, sie nannte {}.",
        "Kontakt: {} oder {}",
    ],
    "zh": [
        "请在周五之前联系{}。",
        "我的联系方式是{}，晚上打电话。",
        "客户资料：{}，金额1204.50元。",
        "请帮我核对{}是否正确。",
        "他给了{}，她给了{}。",
        "联系人：{}或{}",
    ],
}
HARMLESS = [
    lambda r: f"{r.randint(2019, 2029)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}",
    lambda r: f"{r.randint(1, 28)}.{r.randint(1, 12)}.{r.randint(1990, 2029)}",
    lambda r: f"{r.randint(1, 12)}/{r.randint(1, 28)}/{r.randint(1990, 2029)}",
    lambda r: f"v{r.randint(1, 9)}.{r.randint(0, 30)}.{r.randint(0, 99)}",
    lambda r: f"192.168.{r.randint(0, 255)}.{r.randint(1, 254)}",
    lambda r: f"#{r.randint(10_000, 999_999)}",
    lambda r: f"order {r.randint(10_000, 99_999)}",
    lambda r: f"{r.randint(1, 23):02d}:{r.randint(0, 59):02d}",
    lambda r: f"{r.randint(1, 999)},{r.randint(100, 999)} km",
    lambda r: f"{r.getrandbits(160):040x}",
    lambda r: f"ISBN 978-3-{r.randint(16, 99)}-{r.randint(100_000, 999_999)}-{r.randint(0, 9)}",
    lambda r: f"{r.randint(10_000, 99_999)} Berlin",
    lambda r: f"@user{r.randint(1, 99)}",
    lambda r: f"{r.randint(100, 999)}x{r.randint(100, 999)}",
    lambda r: f"{r.uniform(0, 100):.6f}",
    lambda r: f"§ {r.randint(1, 900)} Abs. {r.randint(1, 9)}",
    lambda r: f"Q4_K_M {r.randint(100, 999)} MiB",
    lambda r: f"{r.randint(1, 9)}e-{r.randint(10, 99)}",
]


def _text(rng: random.Random, language: str) -> Labelled:
    parts: list[str] = []
    spans: list[tuple[str, int, int]] = []
    length = 0

    def add(piece: str, kind: str | None = None) -> None:
        nonlocal length
        if kind is not None:
            spans.append((kind, length, length + len(piece)))
        parts.append(piece)
        length += len(piece)

    for _ in range(rng.randint(1, 3)):
        sentence = rng.choice(SENTENCES[language])
        pieces = sentence.split("{}")
        add(pieces[0])
        for piece in pieces[1:]:
            if rng.random() < 0.3:
                add(rng.choice(HARMLESS)(rng))
            else:
                kind = rng.choice(list(MAKERS))
                add(MAKERS[kind](rng, language), kind)
            add(piece)
        add(" " if language != "zh" else "")
    return Labelled("".join(parts), tuple(spans))


def _email(rng: random.Random, _: str) -> str:
    name = rng.choice(["anna.schmidt", "j.doe", "li_wei", "mark+news", "info", "x7", "max-mustermann"])
    return f"{name}{rng.randint(0, 99)}@{rng.choice(['example.com', 'mail.example.de', 'firma.example', 'qq.example.cn'])}"


def _phone(rng: random.Random, language: str) -> str:
    n = rng.randint
    if language == "zh":
        tail = f"{n(0, 9)}{n(0, 9)}"
        return rng.choice(
            [
                f"1{n(3, 9)}{n(0, 9)}{n(10**7, 10**8 - 1)}",
                f"1{n(3, 9)}{n(0, 9)}-{n(1000, 9999)}-{n(1000, 9999)}",
                f"+86 1{n(3, 9)}{n(0, 9)} {n(1000, 9999)} {n(1000, 9999)}",
                f"010-{n(10**7, 10**8 - 1)}",
                f"0755-{n(10**5, 10**6 - 1)}{tail}",
            ]
        )
    if language == "de":
        return rng.choice(
            [
                f"+49 {n(30, 911)} {n(100_000, 9_999_999)}",
                f"+49 (0){n(151, 179)} {n(1_000_000, 99_999_999)}",
                f"0{n(151, 179)}-{n(1_000_000, 99_999_999)}",
                f"0{n(151, 179)} {n(100_000, 9_999_999)}{n(0, 9)}",
                f"({n(30, 89):03d}) {n(100_000, 9_999_999)}",
                f"030/{n(100_000, 9_999_999)}",
                f"0049 {n(30, 911)} {n(1000, 9999)} {n(100, 999)}",
            ]
        )
    return rng.choice(
        [
            f"({n(201, 989)}) {n(201, 989)}-{n(1000, 9999)}",
            f"{n(201, 989)}-{n(201, 989)}-{n(1000, 9999)}",
            f"{n(201, 989)}.{n(201, 989)}.{n(1000, 9999)}",
            f"+1 {n(201, 989)} {n(201, 989)} {n(1000, 9999)}",
            f"+44 20 {n(1000, 9999)} {n(1000, 9999)}",
            f"1-{n(201, 989)}-{n(201, 989)}-{n(1000, 9999)}",
        ]
    )


def _card(rng: random.Random, _: str) -> str:
    prefix, length = rng.choice([("4", 16), ("51", 16), ("55", 16), ("37", 15), ("6011", 16), ("2221", 16)])
    body = prefix + "".join(str(rng.randint(0, 9)) for _ in range(length - len(prefix) - 1))
    for check in range(10):
        total = sum(
            sum(divmod(int(d) * (2 if i % 2 else 1), 10)) for i, d in enumerate(reversed(f"{body}{check}"))
        )
        if total % 10 == 0:
            number = f"{body}{check}"
    separator = rng.choice(["", " ", "-"])
    groups = [4, 6, 5] if length == 15 else [4, 4, 4, 4]
    pieces, at = [], 0
    for size in groups:
        pieces.append(number[at : at + size])
        at += size
    return separator.join(pieces)


def _iban(rng: random.Random, _: str) -> str:
    country, length, letters = rng.choice(
        [("DE", 22, 0), ("GB", 22, 4), ("FR", 27, 0), ("NL", 18, 4), ("AT", 20, 0), ("CH", 21, 0)]
    )
    bank = "".join(rng.choice("ABCDEFGH") for _ in range(letters))
    body = bank + "".join(str(rng.randint(0, 9)) for _ in range(length - 4 - letters))
    digits = "".join(str(int(c, 36)) for c in f"{body}{country}00")
    iban = f"{country}{98 - int(digits) % 97:02d}{body}"
    if rng.random() < 0.5:
        return iban
    return " ".join(iban[i : i + 4] for i in range(0, length, 4))


def _national_id(rng: random.Random, language: str) -> str:
    if language == "zh":
        body = f"{rng.choice(['110101', '310115', '440305'])}{rng.randint(1950, 2010)}{rng.randint(1, 12):02d}{rng.randint(1, 28):02d}{rng.randint(0, 999):03d}"
        weights = [7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2]
        return body + "10X98765432"[sum(int(d) * w for d, w in zip(body, weights, strict=True)) % 11]
    if language == "de":
        while True:
            digits = rng.sample(range(10), 9)
            digits.insert(rng.randint(1, 9), rng.choice(digits))
            if digits[0]:
                break
        product = 10
        for d in digits:
            rest = (d + product) % 10
            product = (10 if rest == 0 else rest) * 2 % 11
        check = 11 - product
        number = "".join(map(str, digits)) + str(0 if check == 10 else check)
        return rng.choice([number, f"{number[:2]} {number[2:5]} {number[5:8]} {number[8:]}"])
    while True:
        area = rng.randint(1, 899)
        if area != 666:
            return f"{area:03d}-{rng.randint(1, 99):02d}-{rng.randint(1, 9999):04d}"


def _secret(rng: random.Random, _: str) -> str:
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

    def draw(length: int) -> str:
        return "".join(rng.choice(alphabet) for _ in range(length))

    return rng.choice(
        [
            f"sk-proj-{draw(40)}",
            f"ghp_{draw(36)}",
            f"AKIA{draw(16).upper()}",
            f"hf_{draw(34)}",
            f"eyJ{draw(20)}.eyJ{draw(30)}.{draw(43)}",
            f"xoxb-{rng.randint(10**10, 10**11)}-{draw(24)}",
        ]
    )


MAKERS: dict[str, Callable[[random.Random, str], str]] = {
    "EMAIL": _email,
    "PHONE": _phone,
    "CARD": _card,
    "IBAN": _iban,
    "ID": _national_id,
    "SECRET": _secret,
}
