from __future__ import annotations

import pytest

from localllm.engines.llama_cpp.pace import Pace


def learned(*, decode_s: float, rows: int, token_s: float) -> Pace:
    pace = Pace(slowdown=2.0, alone_s=0.4)
    for _ in range(20):
        pace.learn(decode_s, rows, 0)
        pace.learn(decode_s + 100 * token_s, rows, 100)
    return pace


@pytest.mark.parametrize(("decode_s", "token_s"), [(0.06, 0.003), (0.2, 0.001), (0.02, 0.00005)])
def test_a_step_with_prefill_takes_about_twice_one_without(decode_s: float, token_s: float) -> None:
    chunk = learned(decode_s=decode_s, rows=4, token_s=token_s).budget(4, 100_000)
    assert decode_s + chunk * token_s <= 2 * decode_s
    assert decode_s + (chunk + 8) * token_s >= 1.9 * decode_s


def test_alone_a_step_is_as_long_as_a_cancel_may_wait() -> None:
    chunk = learned(decode_s=0.06, rows=4, token_s=0.004).budget(0, 2048)
    assert 0.3 <= chunk * 0.004 <= 0.4


def test_chunks_are_whole_tiles_and_within_the_batch() -> None:
    pace = Pace()
    assert pace.budget(0, 2048) % 8 == 0
    assert (pace.budget(3, 2048) + 3) % 8 == 0
    assert pace.budget(0, 5) == 5
    assert learned(decode_s=0.001, rows=1, token_s=1).budget(1, 100) >= 8


def test_drafts_cost_what_was_measured() -> None:
    pace = Pace()
    for _ in range(20):
        pace.learn(0.02, 1, 0)
        pace.learn(0.09, 8, 0)
    assert pace.extra_steps(8, 7) == pytest.approx(3.5)
    assert pace.extra_steps(1, 0) == 0
    assert 0 < pace.extra_steps(4, 3) < 3.5
