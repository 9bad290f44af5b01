"""Inputs that may be one text, many texts, one token list or many: which it is, settled once."""

from __future__ import annotations

from collections.abc import Sequence

from localllm.core.errors import BadRequest


def separate(value: str | Sequence[object], param: str, *, most: int) -> list[str | tuple[int, ...]]:
    """Each input on its own.

    Raises:
        BadRequest: none, more than ``most``, an empty one, or texts and tokens mixed in one list.
    """
    if isinstance(value, str):
        inputs: list[str | tuple[int, ...]] = [value]
    elif value and all(isinstance(item, int) for item in value):
        inputs = [tuple(item for item in value if isinstance(item, int))]
    else:
        inputs = [_one(item, f"{param}[{index}]") for index, item in enumerate(value)]
    if not inputs:
        raise BadRequest(f"{param} must hold at least one input.", param=param)
    if len(inputs) > most:
        raise BadRequest(f"{param} holds {len(inputs)} inputs; at most {most} are taken.", param=param)
    for index, one in enumerate(inputs):
        if not one:
            raise BadRequest(
                f"{param} must not be empty.", param=param if len(inputs) == 1 else f"{param}[{index}]"
            )
    return inputs


def _one(item: object, path: str) -> str | tuple[int, ...]:
    if isinstance(item, str):
        return item
    if isinstance(item, list | tuple) and all(isinstance(token, int) for token in item):
        return tuple(item)
    raise BadRequest("Texts and token ids cannot be mixed in one list.", param=path)
