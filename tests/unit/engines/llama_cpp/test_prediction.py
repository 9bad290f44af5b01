from __future__ import annotations

import random

from localllm.engines.llama_cpp.prediction import Predictor, SuffixIndex


def play(answer: list[int], predictor: Predictor, *, row_cost: float = 0.4) -> tuple[int, int]:
    """Decode ``answer`` with drafts; returns the steps it took and the drafts that were rejected."""
    at = steps = rejected = 0
    while at < len(answer):
        drafts = predictor.draft(len(answer) - at - 1)
        taken = [answer[at]]
        while len(taken) <= len(drafts) and drafts[len(taken) - 1] == taken[-1]:
            taken.append(answer[at + len(taken)])
        predictor.advance(taken, len(drafts), len(drafts) * row_cost)
        rejected += len(drafts) - (len(taken) - 1)
        at += len(taken)
        steps += 1
    return steps, rejected


def text(seed: int, length: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(1000) for _ in range(length)]


def test_a_right_prediction_takes_few_steps() -> None:
    answer = text(1, 300)
    steps, rejected = play(answer, Predictor(answer, []))
    assert steps <= 14
    assert rejected == 0


def test_an_inserted_a_changed_and_a_missing_part_cost_only_a_few_steps_each() -> None:
    answer = text(1, 300)
    prediction = [*answer[:60], *text(2, 9), *answer[60:150], 5, 5, *answer[152:220], *answer[240:]]
    steps, _ = play(answer, Predictor(prediction, []))
    assert steps <= 300 / 5


def test_a_useless_prediction_costs_a_few_per_cent() -> None:
    steps, rejected = play(text(1, 300), Predictor(text(2, 300), []))
    assert steps == 300
    assert rejected * 0.4 <= 0.07 * 300


def test_where_rows_are_dear_fewer_are_spent() -> None:
    source = random.Random(3)
    answer = text(1, 400)
    prediction = [token if source.random() < 0.7 else -1 for token in answer]
    for row_cost in (0.05, 0.9):
        steps, rejected = play(answer, Predictor(prediction, []), row_cost=row_cost)
        accepted = len(answer) - steps
        assert steps + (accepted + rejected) * row_cost <= 1.1 * len(answer)


def test_what_the_prediction_lacks_is_found_in_the_prompt() -> None:
    passage = text(1, 100)
    steps, _ = play([*text(2, 10), *passage], Predictor(text(3, 5), [*text(4, 50), *passage]))
    assert steps < 60


def test_no_drafts_are_offered_where_none_fit() -> None:
    assert Predictor([1, 2, 3], []).draft(0) == []
    assert Predictor([], []).draft(8) == []


def test_the_longest_agreement_wins_then_the_nearest_place() -> None:
    index = SuffixIndex([1, 2, 3, 7, 9, 1, 2, 3, 8, 5, 9, 1, 2, 3, 6])
    assert index.after([9, 1, 2, 3], least=3, near=0) == 8
    assert index.after([9, 1, 2, 3], least=3, near=99) == 14
    assert index.after([4, 1, 2, 3], least=3, near=0) == 3
    assert index.after([4, 1, 2, 3], least=4, near=0) is None
    assert index.after([2, 3], least=3, near=0) is None
