from __future__ import annotations

from localllm.core.control import ChatDetail, ChatMessage, ChatSettings, ChatSummary
from localllm.tui import branches


def message(id: str, parent: str | None, at: float, role: str = "user") -> ChatMessage:
    return ChatMessage(id=id, parent_id=parent, role=role, content=id, created_at=at)  # type: ignore[arg-type]


def chat(*messages: ChatMessage, leaf: str | None = None) -> ChatDetail:
    summary = ChatSummary(id="c", title="t", updated_at=0)
    return ChatDetail(summary=summary, settings=ChatSettings(), messages=messages, leaf_id=leaf)


TREE = (
    message("q", None, 1),
    message("a1", "q", 2, "assistant"),
    message("a2", "q", 3, "assistant"),
    message("q2", "a1", 4),
    message("a3", "q2", 5, "assistant"),
    message("q2b", "a1", 6),
)


def ids(messages: tuple[ChatMessage, ...]) -> list[str]:
    return [m.id for m in messages]


def test_the_shown_branch_ends_at_the_leaf() -> None:
    assert ids(branches.shown(chat(*TREE, leaf="a3"))) == ["q", "a1", "q2", "a3"]


def test_without_a_leaf_the_newest_message_is_the_end() -> None:
    assert ids(branches.shown(chat(*TREE))) == ["q", "a1", "q2b"]


def test_an_empty_chat_shows_nothing() -> None:
    assert branches.shown(chat()) == ()


def test_a_broken_tree_does_not_loop() -> None:
    loop = (message("x", "y", 1), message("y", "x", 2))
    assert ids(branches.shown(chat(*loop, leaf="y"))) == ["x", "y"]
    assert branches.leaf_under(chat(*loop), loop[0]).id == "y"


def test_siblings_are_in_order_of_age() -> None:
    assert ids(branches.siblings(chat(*TREE), TREE[2])) == ["a1", "a2"]


def test_neighbours_end_at_the_edges() -> None:
    assert branches.neighbour(chat(*TREE), TREE[1], -1) is None
    found = branches.neighbour(chat(*TREE), TREE[1], 1)
    assert found is not None
    assert found.id == "a2"


def test_switching_lands_at_the_end_of_the_newest_branch() -> None:
    assert branches.leaf_under(chat(*TREE), TREE[1]).id == "q2b"
    assert branches.leaf_under(chat(*TREE), TREE[3]).id == "a3"
