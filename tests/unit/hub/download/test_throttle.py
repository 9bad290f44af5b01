from __future__ import annotations

from localllm.hub.download.throttle import Throttle


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_the_limit_is_kept_over_all_who_spend() -> None:
    clock = Clock()
    throttle = Throttle(1000.0, clock=lambda: clock.now, sleep=clock.sleep)
    for _ in range(20):
        await throttle.spend(500)
    assert 9.4 <= clock.now <= 10.0


async def test_no_limit_costs_no_time_and_a_pause_gives_no_credit() -> None:
    clock = Clock()
    throttle = Throttle(None, clock=lambda: clock.now, sleep=clock.sleep)
    await throttle.spend(10**9)
    assert clock.now == 0.0
    throttle.bytes_per_second = 100.0
    clock.now = 1000.0
    await throttle.spend(100)
    await throttle.spend(100)
    assert clock.now == 1002.0 or 1001.0 <= clock.now <= 1003.0
