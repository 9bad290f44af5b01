from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localllm.core.machine import Device, DeviceKind
from localllm.service.ledger import Candidate, Ledger

GIB = 1 << 30


def gpu(free: int, total: int = 24 * GIB, margin: int = 0) -> Device:
    return Device(
        id="cuda0", kind=DeviceKind.GPU, name="test", total_bytes=total, free_bytes=free, margin_bytes=margin
    )


def resident(ledger: Ledger, owner: str, amount: int) -> None:
    ledger.reserve(owner, {"cuda0": amount})
    ledger.settle(owner)


def test_two_loads_never_count_the_same_free_memory() -> None:
    ledger = Ledger()
    ledger.reserve("first", {"cuda0": 6 * GIB})

    assert ledger.headroom([gpu(free=10 * GIB)]) == {"cuda0": 4 * GIB}


def test_a_settled_load_is_in_the_drivers_figures_already() -> None:
    ledger = Ledger()
    resident(ledger, "first", 6 * GIB)

    assert ledger.headroom([gpu(free=10 * GIB)]) == {"cuda0": 10 * GIB}


def test_mapped_weights_count_although_the_kernel_calls_their_pages_available() -> None:
    ledger = Ledger()
    resident(ledger, "mapped", 20 * GIB)

    assert ledger.headroom([gpu(free=24 * GIB)]) == {"cuda0": 4 * GIB}


def test_what_strangers_hold_is_not_free_even_if_it_is_called_available() -> None:
    ledger = Ledger(strangers={"cuda0": 5 * GIB})
    resident(ledger, "ours", 10 * GIB)

    assert ledger.headroom([gpu(free=24 * GIB)]) == {"cuda0": 9 * GIB}
    assert ledger.headroom([gpu(free=3 * GIB)]) == {"cuda0": 3 * GIB}


def test_the_margin_is_left_alone() -> None:
    assert Ledger().headroom([gpu(free=10 * GIB, margin=GIB)]) == {"cuda0": 9 * GIB}


def test_what_was_measured_counts_when_it_is_more_than_planned() -> None:
    ledger = Ledger()
    ledger.reserve("fat", {"cuda0": 4 * GIB})
    ledger.settle("fat", {"cuda0": 7 * GIB})

    assert ledger.freed_by(["fat"]) == {"cuda0": 7 * GIB}


def test_released_memory_is_free_again_and_releasing_twice_is_harmless() -> None:
    ledger = Ledger()
    resident(ledger, "a", GIB)
    ledger.release("a")
    ledger.release("a")

    assert ledger.held_bytes("a") == 0
    assert ledger.headroom([gpu(free=24 * GIB)]) == {"cuda0": 24 * GIB}


def test_the_least_recently_used_goes_first_and_no_more_than_needed() -> None:
    ledger = Ledger()
    for name in ("old", "older", "new"):
        resident(ledger, name, 4 * GIB)
    candidates = [Candidate("old", 2.0), Candidate("older", 1.0), Candidate("new", 3.0)]

    assert ledger.to_evict({"cuda0": 3 * GIB}, {"cuda0": 0}, candidates) == ("older",)
    assert ledger.to_evict({"cuda0": 6 * GIB}, {"cuda0": 0}, candidates) == ("older", "old")
    assert ledger.to_evict({"cuda0": 3 * GIB}, {"cuda0": 5 * GIB}, candidates) == ()


def test_a_small_one_is_spared_when_a_big_one_has_to_go_anyway() -> None:
    ledger = Ledger()
    resident(ledger, "small and old", GIB)
    resident(ledger, "big", 10 * GIB)
    candidates = [Candidate("small and old", 1.0), Candidate("big", 2.0)]

    assert ledger.to_evict({"cuda0": 8 * GIB}, {"cuda0": 0}, candidates) == ("big",)


def test_nothing_is_evicted_in_vain() -> None:
    ledger = Ledger()
    resident(ledger, "a", GIB)

    assert ledger.to_evict({"cuda0": 8 * GIB}, {"cuda0": 0}, [Candidate("a", 1.0)]) is None


def test_a_model_on_another_device_is_no_help() -> None:
    ledger = Ledger()
    ledger.reserve("elsewhere", {"cpu": 8 * GIB})
    resident(ledger, "here", 8 * GIB)
    candidates = [Candidate("elsewhere", 1.0), Candidate("here", 2.0)]

    assert ledger.to_evict({"cuda0": 4 * GIB}, {"cuda0": 0}, candidates) == ("here",)


@given(st.lists(st.integers(0, 20), max_size=8), st.integers(0, 60), st.integers(-10, 30))
def test_an_eviction_is_always_enough_and_always_minimal(
    sizes: list[int], needed: int, headroom: int
) -> None:
    ledger = Ledger()
    candidates = []
    for number, size in enumerate(sizes):
        resident(ledger, str(number), size)
        candidates.append(Candidate(str(number), float(number)))

    chosen = ledger.to_evict({"cuda0": needed}, {"cuda0": headroom}, candidates)

    if chosen is None:
        assert headroom + sum(sizes) < needed
        return
    freed = sum(sizes[int(name)] for name in chosen)
    assert headroom + freed >= needed
    for name in chosen:
        assert headroom + freed - sizes[int(name)] < needed
