from __future__ import annotations

from localllm.core.machine import Evidence
from localllm.hardware.evidence import Answer, EvidenceBook


def test_the_first_that_knows_wins_and_all_are_kept() -> None:
    book = EvidenceBook()
    assert book.first("total_bytes", Answer("a", None, "Not Supported"), Answer("b", 5), Answer("c", 7)) == 5
    assert book.entries() == (
        Evidence("total_bytes", "a", "unknown", False, "Not Supported"),
        Evidence("total_bytes", "b", "5", True),
        Evidence("total_bytes", "c", "7", False),
    )


def test_the_lowest_limit_wins_and_zero_is_a_value() -> None:
    book = EvidenceBook()
    assert book.lowest("free_bytes", Answer("a", 9), Answer("b", None), Answer("c", 0)) == 0
    assert [entry.source for entry in book.entries() if entry.used] == ["c"]


def test_equal_answers_use_one() -> None:
    book = EvidenceBook()
    book.first("cores", Answer("a", 4), Answer("b", 4))
    assert [entry.used for entry in book.entries()] == [True, False]


def test_nobody_knowing_is_unknown() -> None:
    book = EvidenceBook()
    nobody: Answer[int] = Answer("a", None)
    assert book.first("cores", nobody) is None
    assert book.lowest("cores", nobody) is None
    book.note("isa", "cpuinfo", "avx2")
    assert not any(entry.used for entry in book.entries())
