"""Personal data: found where it is, left alone where it is not, and restored exactly however a stream is cut."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.service.gateway.pii import Kind, Masker, find
from tests.support.pii_texts import made_up_texts

TEXTS = made_up_texts()


def test_recall_and_precision_on_the_made_up_texts() -> None:
    found_right = missed = wrong = 0
    for text, spans in TEXTS:
        findings = find(text)
        for _, start, end in spans:
            covered = any(f.start <= start and end <= f.end for f in findings)
            found_right, missed = found_right + covered, missed + (not covered)
        wrong += sum(not any(f.start < end and start < f.end for _, start, end in spans) for f in findings)
    assert found_right / (found_right + missed) >= 0.98
    assert found_right / (found_right + wrong) >= 0.95


@pytest.mark.parametrize(
    "text",
    [
        "Meet on 2026-11-30 at 10:15, or 30.11.2026, or 11/30/2026.",
        "Version 1.24.3 of 192.168.10.20, build 20261130.",
        "The card 4111 1111 1111 1112 has a wrong check digit.",
        "DE89 5204 1144 2532 1131 00 is no IBAN.",
        "Order 123456 costs 1,234,567.89 and weighs 0.123456 t.",
        "ids: 000-12-3456, 666-12-3456, 900-12-3456",
        "@somebody said a@b and x @ y.com",
        "sha256 a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ],
)
def test_look_alikes_are_left_alone(text: str) -> None:
    assert [(f.kind, text[f.start : f.end]) for f in find(text)] == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("max@example.com", Kind.EMAIL),
        ("+49 30 1234567", Kind.PHONE),
        ("(415) 555-2671", Kind.PHONE),
        ("13800138000", Kind.PHONE),
        ("4111 1111 1111 1111", Kind.CARD),
        ("378282246310005", Kind.CARD),
        ("DE89 3704 0044 0532 0130 00", Kind.IBAN),
        ("GB82WEST12345698765432", Kind.IBAN),
        ("078-05-1120", Kind.NATIONAL_ID),
        ("11010519491231002X", Kind.NATIONAL_ID),
        ("86095742719", Kind.NATIONAL_ID),
        ("12345678Z", Kind.NATIONAL_ID),
        ("RSSMRA85T10A562S", Kind.NATIONAL_ID),
        ("111.444.777-35", Kind.NATIONAL_ID),
        ("111222333", Kind.NATIONAL_ID),
        ("2345 6789 0124", Kind.NATIONAL_ID),
        ("ghp_" + "a1B2" * 9, Kind.SECRET),
        ("AKIAIOSFODNN7EXAMPLE", Kind.SECRET),
    ],
)
def test_well_known_examples_are_found_whole(text: str, kind: Kind) -> None:
    within = f"请看{text}。"
    assert [(f.kind, within[f.start : f.end]) for f in find(within)] == [(kind, text)]


def test_a_value_keeps_its_placeholder_and_others_get_their_own() -> None:
    masker = Masker()
    assert masker.mask("a@x.com wrote to b@x.com") == "[EMAIL_1] wrote to [EMAIL_2]"
    assert masker.mask("a@x.com again") == "[EMAIL_1] again"
    assert masker.counts == {"EMAIL": 2}


def test_a_placeholder_that_the_person_wrote_is_not_taken() -> None:
    masker = Masker()
    text = "What does [EMAIL_1] mean? I am a@x.com"
    masker.reserve(text)
    masked = masker.mask(text)
    assert masked == "What does [EMAIL_1] mean? I am [EMAIL_2]"
    restorer = masker.restorer()
    assert restorer.feed(masked) + restorer.finish() == text


def test_restoring_is_exact_on_streams_cut_at_random() -> None:
    rng = random.Random(1)
    for text, _ in TEXTS:
        masker = Masker()
        masked = masker.mask(text)
        restorer = masker.restorer()
        out, at = "", 0
        while at < len(masked):
            step = rng.randint(1, 5)
            out += restorer.feed(masked[at : at + step])
            at += step
        assert out + restorer.finish() == text


def test_inside_json_the_original_is_escaped() -> None:
    masker = Masker()
    key = '-----BEGIN PRIVATE KEY-----\nMII"x\n-----END PRIVATE KEY-----'
    masked = masker.mask(f"use {key}")
    restorer = masker.restorer(in_json=True)
    written = restorer.feed('{"text": "' + masked + '"}') + restorer.finish()
    assert json.loads(written) == {"text": f"use {key}"}


def test_only_what_may_become_a_placeholder_waits() -> None:
    masker = Masker()
    masker.mask("a@x.com")
    restorer = masker.restorer()
    assert restorer.feed("see [EMA") == "see "
    assert restorer.feed("IL_1") == ""
    assert restorer.feed("] or [x]") == "a@x.com or [x]"
    assert restorer.feed("[list") == "[list"
    assert restorer.feed(" [1") == " [1"


@given(st.text(max_size=300))
def test_any_text_survives_masking_and_restoring(text: str) -> None:
    masker = Masker()
    masker.reserve(text)
    restorer = masker.restorer()
    masked = masker.mask(text)
    assert restorer.feed(masked) + restorer.finish() == text
