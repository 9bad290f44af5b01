"""National identity numbers with their checksums: what looks like one and is none is not personal data.

Each check takes the number without separators. Sources are the issuing bodies' published rules, named per function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_VERHOEFF_D = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    (1, 2, 3, 4, 0, 6, 7, 8, 9, 5),
    (2, 3, 4, 0, 1, 7, 8, 9, 5, 6),
    (3, 4, 0, 1, 2, 8, 9, 5, 6, 7),
    (4, 0, 1, 2, 3, 9, 5, 6, 7, 8),
    (5, 9, 8, 7, 6, 0, 4, 3, 2, 1),
    (6, 5, 9, 8, 7, 1, 0, 4, 3, 2),
    (7, 6, 5, 9, 8, 2, 1, 0, 4, 3),
    (8, 7, 6, 5, 9, 3, 2, 1, 0, 4),
    (9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
)
_VERHOEFF_P = (
    (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    (1, 5, 7, 6, 2, 8, 3, 0, 9, 4),
    (5, 8, 0, 3, 7, 9, 6, 1, 4, 2),
    (8, 9, 1, 6, 0, 4, 3, 5, 2, 7),
    (9, 4, 5, 3, 1, 2, 6, 8, 7, 0),
    (4, 2, 8, 6, 5, 7, 3, 9, 0, 1),
    (2, 7, 9, 3, 8, 0, 6, 4, 1, 5),
    (7, 0, 4, 6, 9, 1, 3, 2, 5, 8),
)
_CODICE_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)


def luhn(digits: str) -> bool:
    """ISO/IEC 7812-1, annex B."""
    total = 0
    for place, char in enumerate(reversed(digits)):
        value = int(char)
        if place % 2:
            value = value * 2 - 9 if value > 4 else value * 2
        total += value
    return total % 10 == 0


def us_ssn(digits: str) -> bool:
    """SSA: no area 000, 666 or 9xx, no group 00, no serial 0000. There is no checksum."""
    return not (
        digits[:3] in ("000", "666") or digits[0] == "9" or digits[3:5] == "00" or digits[5:] == "0000"
    )


def german_tax_id(digits: str) -> bool:
    """§ 139b AO: 11 digits, the first not 0, one digit twice or thrice among the first ten, ISO 7064 mod 11,10."""
    first = digits[:10]
    repeats = sorted((first.count(d) for d in set(first)), reverse=True)
    if digits[0] == "0" or repeats[0] not in (2, 3) or (len(repeats) > 1 and repeats[1] > 1):
        return False
    product = 10
    for char in first:
        total = (int(char) + product) % 10 or 10
        product = total * 2 % 11
    return (11 - product) % 10 == int(digits[10])


def german_id_card(text: str) -> bool:
    """ICAO 9303 over the nine characters of the document number: weights 7, 3, 1; the tenth is the check digit."""
    values = [int(c) if c.isdigit() else ord(c.upper()) - 55 for c in text[:9]]
    return sum(v * (7, 3, 1)[i % 3] for i, v in enumerate(values)) % 10 == int(text[9])


def chinese_resident_id(text: str) -> bool:
    """GB 11643-1999: 17 digits and an ISO 7064 mod 11-2 character, with a believable date of birth."""
    year, month, day = int(text[6:10]), int(text[10:12]), int(text[12:14])
    if not (1900 <= year <= 2100 and 1 <= month <= 12 and 1 <= day <= 31):
        return False
    total = sum(int(c) * (2 ** (17 - i) % 11) for i, c in enumerate(text[:17]))
    return "10X98765432"[total % 11] == text[17].upper()


def spanish_dni(text: str) -> bool:
    """Real Decreto 1553/2005: the letter is the number modulo 23; X, Y, Z stand for 0, 1, 2 in an NIE."""
    number = text[:-1].upper().translate(str.maketrans("XYZ", "012"))
    return "TRWAGMYFPDXBNJZSQVHLCKE"[int(number) % 23] == text[-1].upper()


def french_nir(text: str) -> bool:
    """INSEE: 13 characters and the key 97 - number mod 97; 2A and 2B (Corsica) count as 19 and 18."""
    body = text[:13].upper().replace("2A", "19").replace("2B", "18")
    return 97 - int(body) % 97 == int(text[13:])


def italian_codice(text: str) -> bool:
    """DM 345/1976: the 16th letter from weights of the odd and even places."""
    total = 0
    for place, char in enumerate(text[:15].upper(), start=1):
        value = int(char) if char.isdigit() else ord(char) - 65
        total += _CODICE_ODD[value] if place % 2 else value
    return chr(65 + total % 26) == text[15].upper()


def dutch_bsn(digits: str) -> bool:
    """The eleven test: weights 9 … 2 and -1."""
    return (
        digits != "000000000"
        and sum(int(d) * w for d, w in zip(digits, (9, 8, 7, 6, 5, 4, 3, 2, -1), strict=True)) % 11 == 0
    )


def brazilian_cpf(digits: str) -> bool:
    """Receita Federal: two check digits modulo 11; eleven equal digits are none."""
    if len(set(digits)) == 1:
        return False
    for length in (9, 10):
        rest = sum(int(d) * (length + 1 - i) for i, d in enumerate(digits[:length])) * 10 % 11 % 10
        if rest != int(digits[length]):
            return False
    return True


def polish_pesel(digits: str) -> bool:
    """Weights 1, 3, 7, 9; the month carries the century."""
    if not 1 <= int(digits[2:4]) % 20 <= 12:
        return False
    return sum(int(d) * (1, 3, 7, 9)[i % 4] for i, d in enumerate(digits[:10])) % 10 == -int(digits[10]) % 10


def indian_aadhaar(digits: str) -> bool:
    """UIDAI: twelve digits, the first 2 … 9, Verhoeff."""
    if digits[0] in "01":
        return False
    check = 0
    for place, char in enumerate(reversed(digits)):
        check = _VERHOEFF_D[check][_VERHOEFF_P[place % 8][int(char)]]
    return check == 0


NATIONAL_IDS: Sequence[tuple[str, Callable[[str], bool]]] = (
    # (pattern, check); within a pattern the separators are spaces, dots or hyphens, which the check does not see
    (r"\d{17}[\dXx]", chinese_resident_id),
    (r"\d{3}-\d{2}-\d{4}", us_ssn),
    (r"[12]\s?\d{2}\s?\d{2}\s?(?:\d{2}|2[ABab])\s?\d{3}\s?\d{3}\s?\d{2}", french_nir),
    (r"[A-Za-z]{6}\d{2}[A-Za-z]\d{2}[A-Za-z]\d{3}[A-Za-z]", italian_codice),
    (r"\d{3}\.\d{3}\.\d{3}-\d{2}", brazilian_cpf),
    (r"\d{4}\s\d{4}\s\d{4}", indian_aadhaar),
    (r"\d{2}\s?\d{3}\s?\d{3}\s?\d{3}", german_tax_id),
    (r"[CFGHJKLMNPRTVWXYZcfghjklmnprtvwxyz][0-9CFGHJKLMNPRTVWXYZcfghjklmnprtvwxyz]{8}\d", german_id_card),
    (r"(?:\d{8}|[XYZxyz]\d{7})-?[A-Za-z]", spanish_dni),
    (r"\d{11}", polish_pesel),
    (r"\d{9}", dutch_bsn),
)
