from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localllm.engines.llama_cpp.prefix import PrefixTree, Tokens, common_length


def array(*tokens: int) -> Tokens:
    return np.array(tokens, np.int32)


def test_the_longest_common_prefix_comes_first() -> None:
    tree = PrefixTree()
    tree.put(1, array(1, 2, 3, 4))
    tree.put(2, array(1, 2, 9))
    tree.put(3, array(7))
    assert list(tree.match(array(1, 2, 3, 8))) == [(1, 3), (2, 2)]
    assert list(tree.match(array(8))) == []


def test_a_sequence_that_is_put_again_has_only_its_new_path() -> None:
    tree = PrefixTree()
    tree.put(1, array(1, 2, 3))
    tree.put(1, array(5, 6))
    assert list(tree.match(array(1, 2, 3))) == []
    assert list(tree.match(array(5, 6, 7))) == [(1, 2)]
    tree.remove(1)
    tree.remove(1)
    assert len(tree) == 0


sequences = st.lists(st.integers(0, 3), max_size=8)


@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), sequences)), max_size=30), sequences)
def test_the_tree_agrees_with_comparing_one_by_one(
    changes: list[tuple[int, list[int] | None]], asked: list[int]
) -> None:
    tree = PrefixTree()
    model: dict[int, list[int]] = {}
    for number, tokens in changes:
        if tokens is None:
            tree.remove(number)
            model.pop(number, None)
        else:
            tree.put(number, array(*tokens))
            model[number] = tokens
    expected = {n: common_length(array(*tokens), array(*asked)) for n, tokens in model.items()}
    found = list(tree.match(array(*asked)))
    assert dict(found) == {n: length for n, length in expected.items() if length}
    assert [length for _, length in found] == sorted((length for _, length in found), reverse=True)


def test_common_length_of_empty_and_equal_arrays() -> None:
    assert common_length(array(), array(1)) == 0
    assert common_length(array(1, 2), array(1, 2, 3)) == 2
    assert common_length(array(1, 2), array(1, 3)) == 1
