"""The table of keys, checked against the screens that it speaks of."""

from __future__ import annotations

import re
from importlib import import_module

import pytest
from textual.app import App

from localllm.tui.actions import ACTIONS, Action, Scope, bar, bindings, shown_key, within
from localllm.tui.screens.frame import FrameScreen

SCREENS = [s for s in Scope if s is not Scope.EVERYWHERE]


def screen_class(scope: Scope) -> type[FrameScreen]:
    module = import_module(f"localllm.tui.screens.{scope.value}")
    found: type[FrameScreen] = getattr(module, f"{scope.value.title()}Screen")
    return found


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: f"{a.scope}:{a.name}")
def test_every_action_is_implemented(action: Action) -> None:
    name = re.sub(r"\(.*", "", action.name)
    if name.startswith("app."):
        assert hasattr(App, f"action_{name.removeprefix('app.')}")
    else:
        cls = FrameScreen if action.scope is Scope.EVERYWHERE else screen_class(action.scope)
        assert hasattr(cls, f"action_{name}")


@pytest.mark.parametrize("scope", SCREENS)
def test_no_key_means_two_things(scope: Scope) -> None:
    keys = [key for a in ACTIONS if a.scope in (scope, Scope.EVERYWHERE) for key in a.keys]
    assert sorted(keys) == sorted(set(keys))


@pytest.mark.parametrize("scope", SCREENS)
def test_the_screen_binds_its_scope(scope: Scope) -> None:
    bound = {key for binding in bindings(scope) for key in binding.key.split(",")}  # type: ignore[union-attr]
    assert bound == {key for action in within(scope) for key in action.keys}
    assert screen_class(scope).scope is scope


def test_what_works_while_typing_is_no_printable_key() -> None:
    for action in ACTIONS:
        if action.typing:
            assert "+" in action.keys[0] or action.keys[0] == "enter"


def test_no_key_needs_a_modern_keyboard_protocol() -> None:
    for action in ACTIONS:
        for key in action.keys:
            assert not re.search(r"super|hyper|meta|ctrl\+shift|shift\+enter|ctrl\+\d", key)


def test_the_bar_is_ordered_and_honest_while_typing() -> None:
    offered = bar(Scope.CHAT, typing=True)
    assert all(action.typing for action in offered)
    ranks = [action.bar or 0 for action in bar(Scope.CHAT, typing=False)]
    assert ranks == sorted(ranks)


def test_keys_are_written_as_people_write_them() -> None:
    assert [shown_key(k) for k in ("ctrl+p", "slash", "f10", "question_mark", "q")] == [
        "^p",
        "/",
        "F10",
        "?",
        "q",
    ]
