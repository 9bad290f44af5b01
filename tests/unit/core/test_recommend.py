"""The fit table: its rows, its recommendation and its speed."""

from __future__ import annotations

import time

import pytest

from localllm.core.control import FitRow, FitTable, Verdict
from localllm.core.recommend import OFFERED, fit_table
from tests.support.known_facts import facts_of
from tests.support.plain_machine import machine


def table(
    model: str, ram: float, *gpus: float, quant: str = "Q4_K_M", context: int | None = None
) -> FitTable:
    facts = facts_of(model, quant)
    return fit_table(
        facts,
        machine(ram, *gpus),
        model=model,
        here={quant: facts.size_bytes},
        context_length=context,
    )


def recommended(found: FitTable) -> FitRow | None:
    return next((row for row in found.rows if row.recommended), None)


def test_every_offered_quant_has_a_row_largest_first() -> None:
    found = table("Llama-3.1-8B", 32, 24)
    assert {row.quant for row in found.rows} == set(OFFERED)
    sizes = [row.file_bytes for row in found.rows]
    assert sizes == sorted(sizes, reverse=True)
    here = [row.quant for row in found.rows if row.here]
    assert here == ["Q4_K_M"]


def test_parts_add_up_to_the_total() -> None:
    for row in table("Llama-3.1-8B", 32, 24).rows:
        assert row.weights_bytes + row.kv_bytes + row.compute_bytes + row.overhead_bytes == row.total_bytes


def test_verdicts_from_room_to_none() -> None:
    rows = {row.quant: row.verdict for row in table("Llama-3.1-8B", 16, 8, context=8192).rows}
    assert rows["Q4_K_M"] is Verdict.FITS
    assert rows["Q8_0"] is Verdict.PARTIAL
    none = {row.verdict for row in table("Llama-3.3-70B", 8).rows}
    assert none == {Verdict.NO}


@pytest.mark.parametrize(
    ("model", "ram", "gpus", "quant"),
    [
        ("gemma-3-270m", 16, (), "Q8_0"),
        ("Llama-3.1-8B", 64, (80,), "Q8_0"),
        ("Llama-3.1-8B", 32, (12,), "Q4_K_M"),
        ("Llama-3.2-3B", 16, (4,), "Q5_K_M"),
        ("Llama-3.3-70B", 64, (24,), "Q4_K_M"),
    ],
)
def test_the_recommendation(model: str, ram: float, gpus: tuple[float, ...], quant: str) -> None:
    found = table(model, ram, *gpus)
    row = recommended(found)
    assert row is not None
    assert row.quant == quant
    assert row.reason
    assert found.recommendation == f"{quant}: {row.reason}"


def test_q2_is_never_recommended_first() -> None:
    for gib in (2.0, 2.5, 3.0, 3.5, 4.0, 5.0):
        row = recommended(table("Llama-3.1-8B", 1, gib))
        assert row is None or row.quant != "Q2_K"


def test_a_native_type_stays_alone() -> None:
    found = table("gpt-oss-20b", 32, 24, quant="MXFP4_MOE")
    assert [row.quant for row in found.rows] == ["MXFP4_MOE"]
    assert "trained in this type" in (found.recommendation or "")


def test_nothing_fits_is_said_with_what_lacks() -> None:
    found = table("Llama-3.3-70B", 8)
    assert recommended(found) is None
    assert "lacks" in (found.recommendation or "")


def test_a_listed_size_counts_before_a_recipe() -> None:
    facts = facts_of("Llama-3.1-8B")
    found = fit_table(
        facts,
        machine(32, 24),
        model="x",
        here={},
        listed={"Q6_K": 7_000_000_000, "UD-Q4_K_XL": 5_000_000_000},
    )
    rows = {row.quant: row for row in found.rows}
    assert rows["Q6_K"].file_bytes == 7_000_000_000
    assert rows["Q6_K"].file_bytes_source == "listed"
    assert rows["UD-Q4_K_XL"].quality == "good"
    assert rows["Q8_0"].file_bytes_source == "formula"


def test_the_longest_context_really_is() -> None:
    row = next(r for r in table("Llama-3.1-8B", 16, 8, context=4096).rows if r.quant == "Q4_K_M")
    assert row.longest_context is not None
    fits = next(
        r for r in table("Llama-3.1-8B", 16, 8, context=row.longest_context).rows if r.quant == "Q4_K_M"
    )
    longer = next(
        r for r in table("Llama-3.1-8B", 16, 8, context=row.longest_context + 256).rows if r.quant == "Q4_K_M"
    )
    assert fits.verdict in (Verdict.FITS, Verdict.TIGHT)
    assert longer.verdict is Verdict.PARTIAL


def test_a_context_nobody_asked_for_does_not_push_the_model_off_the_gpu() -> None:
    found = table("Llama-3.1-8B", 16, 8)
    assert found.context_length < 32768
    assert next(r for r in found.rows if r.quant == "IQ4_XS").verdict is not Verdict.PARTIAL


def test_past_the_trained_context_is_warned() -> None:
    assert "trained on 4096" in table("Llama-2-7B", 32, 24, context=8192).warnings[0]


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Qwen3-30B-A3B", "Llama-3.3-70B"])
def test_a_table_takes_at_most_150_ms(model: str) -> None:
    def spent() -> float:
        began = time.process_time()
        table(model, 64, 24)
        return time.process_time() - began

    spent()
    assert min(spent() for _ in range(3)) < 0.15
