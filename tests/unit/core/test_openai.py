"""The wire types: null is "not given" for every optional field, and every number has a range."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from msgspec import Struct

from localllm.core.openai import ChatRequest, CompletionRequest, EmbeddingRequest

REQUESTS: list[tuple[type[Struct], dict[str, Any]]] = [
    (ChatRequest, {"messages": []}),
    (CompletionRequest, {"prompt": "x"}),
    (EmbeddingRequest, {"input": "x"}),
]


@pytest.mark.parametrize(("shape", "needed"), REQUESTS)
def test_null_is_not_given(shape: type[Struct], needed: dict[str, Any]) -> None:
    nulls = dict.fromkeys(shape.__struct_encode_fields__)
    assert msgspec.convert(nulls | needed, shape) == msgspec.convert(needed, shape)


@pytest.mark.parametrize(("shape", "needed"), REQUESTS)
@pytest.mark.parametrize("huge", [2**70, -(2**70), 1e300, -1e300])
def test_no_number_goes_unchecked(shape: type[Struct], needed: dict[str, Any], huge: float) -> None:
    numbers = [name for name, hint in get_type_hints(shape).items() if {int, float} & _types_in(hint)]
    assert shape is EmbeddingRequest or len(numbers) > 15
    for name in numbers:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(needed | {name: huge}, shape)


def _types_in(hint: Any) -> set[Any]:
    return {hint}.union(*(_types_in(part) for part in get_args(hint) if not isinstance(part, str | int)))
