from __future__ import annotations

from localllm.service.history import COARSE_S, FINE_S, HistoryRing


def test_five_minutes_in_full_and_an_hour_in_steps() -> None:
    ring = HistoryRing()
    for second in range(COARSE_S + 100):
        ring.add(float(second), {"tokens_per_second": float(second)})
    now = float(COARSE_S + 99)

    fine = ring.last(FINE_S, now)
    assert len(fine.times) == FINE_S + 1 and fine.times[-1] == now
    coarse = ring.last(COARSE_S, now)
    assert 355 <= len(coarse.times) <= 361
    assert coarse.series[0].values[0] == coarse.times[0]


def test_a_device_that_comes_later_has_gaps_before() -> None:
    ring = HistoryRing()
    ring.add(1.0, {"a": 1.0})
    ring.add(2.0, {"a": 2.0, "cuda0:memory_used_bytes": 5.0})

    a, device = ring.last(60, 2.0).series
    assert a.values == (1.0, 2.0)
    assert (device.values, device.unit) == ((None, 5.0), "bytes")


def test_a_clock_set_back_starts_afresh() -> None:
    ring = HistoryRing()
    ring.add(1000.0, {"a": 1.0})
    ring.add(10.0, {"a": 2.0})
    assert ring.last(60, 10.0).times == (10.0,)
