from __future__ import annotations

import random

import pytest

from localllm.engines.llama_cpp.cells import CellLedger


def test_shared_cells_count_once_and_stay_until_their_last_owner_goes() -> None:
    cells = CellLedger(1000, 3)
    cells.grow(0, 100)
    cells.share(0, 1, 60)
    cells.grow(1, 10)
    assert (cells.used, cells.length(1), cells.free) == (110, 70, 890)
    cells.cut(0, 0)
    assert cells.used == 70
    cells.cut(1, 0)
    assert cells.used == 0


def test_a_cut_through_shared_cells_frees_only_what_nobody_else_owns() -> None:
    cells = CellLedger(1000, 3)
    cells.grow(0, 100)
    cells.share(0, 1, 80)
    cells.cut(0, 50)
    assert cells.used == 80
    cells.cut(1, 20)
    assert (cells.used, cells.length(0), cells.length(1)) == (50, 50, 20)


def test_held_counts_each_cell_of_several_sequences_once() -> None:
    cells = CellLedger(1000, 3)
    cells.grow(0, 100)
    cells.share(0, 1, 100)
    cells.grow(1, 5)
    cells.grow(2, 7)
    assert cells.held([0, 1]) == 105
    assert cells.held([2]) == 7


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_operations_agrees_with_counting_cells_one_by_one(seed: int) -> None:
    source = random.Random(seed)
    ledger = CellLedger(10_000, 5)
    model: list[list[int]] = [[] for _ in range(5)]
    fresh = 0
    for _ in range(400):
        sequence = source.randrange(5)
        match source.randrange(3):
            case 0:
                count = source.randrange(1, 20)
                model[sequence] += range(fresh, fresh + count)
                fresh += count
                ledger.grow(sequence, count)
            case 1:
                length = source.randrange(len(model[sequence]) + 1)
                del model[sequence][length:]
                ledger.cut(sequence, length)
            case _:
                target = source.randrange(5)
                if not model[target] and model[sequence]:
                    length = source.randrange(1, len(model[sequence]) + 1)
                    model[target] = model[sequence][:length]
                    ledger.share(sequence, target, length)
        assert ledger.used == len({cell for cells in model for cell in cells})
        assert [ledger.length(n) for n in range(5)] == [len(cells) for cells in model]
        assert ledger.held([0, 2]) == len({*model[0], *model[2]})
