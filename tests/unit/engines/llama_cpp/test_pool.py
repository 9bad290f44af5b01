from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from localllm.engines.llama_cpp.pool import MemoryKind, SequencePool, Source, Wait
from localllm.engines.llama_cpp.prefix import Tokens
from tests.support.fake_context import FakeContext


def tokens(*parts: Sequence[int]) -> Tokens:
    return np.array([token for part in parts for token in part], np.int32)


class Fixture:
    def __init__(self, *, kind: MemoryKind = MemoryKind.FULL, window: int = 0, sequences: int = 4) -> None:
        self.context = FakeContext(kind=kind, window=window, sequences=sequences, cells=10_000, batch=10_000)
        self.pool = SequencePool(self.context, sequences=sequences, cells=10_000, kind=kind, window=window)

    def take(self, prompt: Tokens) -> tuple[int, int]:
        source = self.pool.find(prompt)
        assert isinstance(source, Source)
        taken = self.pool.take(prompt, source)
        assert taken is not None
        return taken

    def compute(self, number: int, prompt: Tokens, upto: int) -> None:
        start = len(self.context.held[number])
        self.context.batch.clear()
        self.context.batch.put(number, prompt[start:upto], start, 0)
        assert self.context.decode() == 0
        self.pool.grow(number, upto - start)

    def remember(self, prompt: Tokens) -> int:
        number, _ = self.take(prompt)
        self.compute(number, prompt, len(prompt))
        self.pool.release(number, prompt)
        return number


A, B, C = list(range(1, 101)), list(range(200, 240)), list(range(300, 340))


def test_an_idle_sequence_that_is_continued_is_used_itself() -> None:
    fixture = Fixture()
    number = fixture.remember(tokens(A))
    assert fixture.take(tokens(A, B)) == (number, 100)


def test_an_idle_sequence_that_differs_later_is_copied_and_kept() -> None:
    fixture = Fixture()
    number = fixture.remember(tokens(A, B))
    other, length = fixture.take(tokens(A, C))
    assert (other != number, length) == (True, 100)
    assert fixture.pool.idle() == [number]
    assert fixture.pool.cells.used == fixture.context.used() == 140


def test_one_token_is_always_left_to_compute() -> None:
    fixture = Fixture()
    fixture.remember(tokens(A))
    assert fixture.take(tokens(A))[1] == 99


def test_what_another_is_computing_is_waited_for_and_then_copied() -> None:
    fixture = Fixture()
    leader, _ = fixture.take(tokens(A, B))
    fixture.compute(leader, tokens(A, B), 20)
    wait = fixture.pool.find(tokens(A, C))
    assert wait == Wait(leader, 100)
    assert isinstance(wait, Wait)
    assert fixture.pool.is_coming(wait, tokens(A, C))
    fixture.compute(leader, tokens(A, B), 110)
    assert not fixture.pool.is_coming(wait, tokens(A, C))
    assert fixture.pool.find(tokens(A, C)) == Source(leader, 100, live=True)


def test_a_wait_ends_when_its_leader_is_gone() -> None:
    fixture = Fixture()
    leader, _ = fixture.take(tokens(A, B))
    fixture.compute(leader, tokens(A, B), 20)
    wait = fixture.pool.find(tokens(A, C))
    assert isinstance(wait, Wait)
    fixture.pool.release(leader, tokens(A)[:20])
    assert not fixture.pool.is_coming(wait, tokens(A, C))
    assert fixture.pool.find(tokens(A, C)) == Source(leader, 20)


def test_little_is_not_waited_for() -> None:
    fixture = Fixture()
    leader, _ = fixture.take(tokens(A))
    fixture.compute(leader, tokens(A), 80)
    assert fixture.pool.find(tokens(A, C)) == Source(leader, 80, live=True)


def test_an_exact_memory_pauses_where_others_want_to_copy_it() -> None:
    fixture = Fixture(kind=MemoryKind.EXACT)
    leader, _ = fixture.take(tokens(A, B))
    fixture.compute(leader, tokens(A, B), 20)
    assert isinstance(fixture.pool.find(tokens(A, C)), Wait)
    assert fixture.pool.next_stop(leader, 20) == 100
    fixture.compute(leader, tokens(A, B), 100)
    assert fixture.pool.next_stop(leader, 100) == 132  # where its own checkpoint is
    assert fixture.pool.find(tokens(A, C)) == Source(leader, 100, live=True)
    fixture.compute(leader, tokens(A, B), 101)
    assert fixture.pool.find(tokens(A, C)) == Source(None, 0)


def test_an_exact_memory_keeps_a_checkpoint_near_the_end_of_a_prompt() -> None:
    fixture = Fixture(kind=MemoryKind.EXACT)
    number, _ = fixture.take(tokens(A))
    assert fixture.pool.next_stop(number, 0) == 92
    fixture.compute(number, tokens(A), 92)
    fixture.compute(number, tokens(A), 100)
    fixture.pool.release(number, tokens(A))
    assert fixture.pool.cells.used == fixture.context.used() == 100
    assert fixture.pool.find(tokens(A[:95], B)).length == 92
    other, length = fixture.take(tokens(A[:95], B))
    assert (other != number, length) == (True, 92)


def test_a_window_lends_only_what_it_still_holds() -> None:
    fixture = Fixture(kind=MemoryKind.WINDOW, window=16)
    fixture.remember(tokens(A))
    assert fixture.pool.find(tokens(A, B)).length == 100
    assert fixture.pool.find(tokens(A[:90], B)).length == 90
    assert fixture.pool.find(tokens(A[:50], B)).length == 0


def test_the_least_recently_used_prefix_is_forgotten_first() -> None:
    fixture = Fixture(sequences=2)
    first = fixture.remember(tokens(A))
    second = fixture.remember(tokens(B))
    assert fixture.pool.idle() == [first, second]
    fixture.remember(tokens(C))
    assert fixture.pool.find(tokens(A, [1])).length == 0
    assert fixture.pool.find(tokens(B, [1])).length == 40


def test_room_is_made_by_forgetting_only_as_much_as_needed() -> None:
    fixture = Fixture()
    for prompt in (A, B, C):
        fixture.remember(tokens(prompt))
    assert fixture.pool.make_room(10_000 - 60)
    assert fixture.pool.find(tokens(A, [1])).length == 0
    assert fixture.pool.find(tokens(C, [1])).length == 40
    assert fixture.pool.cells.used == fixture.context.used()


def test_nothing_is_taken_when_every_sequence_is_in_use() -> None:
    fixture = Fixture(sequences=1)
    fixture.take(tokens(A))
    assert fixture.pool.take(tokens(B), Source(None, 0)) is None
