from __future__ import annotations

import json

import pytest

from benchmarks.support import Goal, figure, print_figures


@pytest.mark.parametrize(
    ("relation", "value", "met"), [("<=", 3.0, True), ("<=", 3.1, False), (">=", 2.9, False)]
)
def test_a_goal_is_met_or_missed(relation: str, value: float, met: bool) -> None:
    assert Goal(relation, 3.0).met(value) is met


def test_figures_are_one_object_with_runs_and_machine(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [figure("a.b", 2.0, "ms", Goal("<=", 3)), figure("a.c", 1.0, "tokens/s")]
    print_figures(figures, {"threads": 1}, as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert report["figures"][0] == {"name": "a.b", "value": 2.0, "unit": "ms", "goal": "<= 3", "met": True}
    assert report["figures"][1]["met"] is None
    assert report["runs"] == {"threads": 1}
    assert report["machine"]["memory_bytes"] > 0


def test_for_a_person_a_missed_goal_stands_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_figures([figure("a.b", 4.0, "ms", Goal("<=", 3))], {}, as_json=False)
    assert "MISSED" in capsys.readouterr().out
