"""Every key of the app, in one table: bindings, key bar, command palette and the help screen are made from it.

An action that is not here has no key; a key that is here is shown, documented and tested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from textual.binding import Binding, BindingType


class Scope(StrEnum):
    """Where an action works: everywhere, or on one screen."""

    EVERYWHERE = "everywhere"
    CHAT = "chat"
    MODELS = "models"
    MONITOR = "monitor"
    SERVER = "server"
    SETTINGS = "settings"


@dataclass(frozen=True, slots=True)
class Action:
    """``name`` is the Textual action; ``keys`` by Textual's names; ``label`` one or two words for the key bar.

    ``bar``: rank in the key bar, smallest first, None = not shown there. ``typing``: works (and is shown) while text
    is typed, so its first key must be no printable one. ``palette``: offered as a command. ``pair``: both keys as the
    key bar writes them, where one label speaks for two opposite actions.
    """

    name: str
    keys: tuple[str, ...]
    label: str
    help: str
    scope: Scope
    bar: int | None = None
    typing: bool = False
    palette: bool = True
    pair: str | None = None

    @property
    def shown_key(self) -> str:
        return self.pair or shown_key(self.keys[0])


_ALL, _CHAT, _MODELS = Scope.EVERYWHERE, Scope.CHAT, Scope.MODELS
_MONITOR, _SERVER, _SETTINGS = Scope.MONITOR, Scope.SERVER, Scope.SETTINGS

ACTIONS: tuple[Action, ...] = (
    Action("go('chat')", ("1", "f1"), "Chat", "Talk to a model", _ALL),
    Action("go('models')", ("2", "f2"), "Models", "What is here and what fits this machine", _ALL),
    Action("go('monitor')", ("3", "f3"), "Monitor", "Devices, engines and requests, live", _ALL),
    Action("go('server')", ("4", "f4"), "Server", "Address, snippets and the request log", _ALL),
    Action("go('settings')", ("5", "f5"), "Settings", "Every setting, the doctor, themes", _ALL),
    Action(
        "app.command_palette",
        ("ctrl+p",),
        "commands",
        "Find any command by name",
        _ALL,
        bar=90,
        typing=True,
        palette=False,
    ),
    Action("search", ("slash", "ctrl+f"), "search", "Search what this screen lists", _ALL, bar=91),
    Action("help", ("question_mark", "f10"), "help", "This page", _ALL, bar=92),
    Action(
        "detach", ("q", "ctrl+q"), "detach", "Leave the app; the service and its replies go on", _ALL, bar=99
    ),
    Action("start_service", ("S",), "start service", "Start the service when it is not running", _ALL),
    Action("stop_service", ("Q",), "stop service", "Stop the service, after asking", _ALL),
    Action("leave", ("escape",), "back", "Leave the field, close what is open", _ALL, palette=False),
    # ------------------------------------------------------------ chat
    Action("send", ("enter",), "send", "Send what is typed", _CHAT, bar=1, typing=True, palette=False),
    Action(
        "newline",
        ("ctrl+j",),
        "newline",
        "A new line in what is typed",
        _CHAT,
        bar=2,
        typing=True,
        palette=False,
    ),
    Action(
        "stop", ("ctrl+s", "s"), "stop", "Stop the reply; what was written stays", _CHAT, bar=3, typing=True
    ),
    Action("new_chat", ("ctrl+n", "n"), "new", "Begin a new chat", _CHAT, bar=4, typing=True),
    Action(
        "switch_model",
        ("ctrl+t", "m"),
        "model",
        "Choose the model of this chat and load it",
        _CHAT,
        bar=5,
        typing=True,
    ),
    Action(
        "options",
        ("ctrl+o", "o"),
        "options",
        "System prompt and sampling of this chat",
        _CHAT,
        bar=6,
        typing=True,
    ),
    Action("regenerate", ("r", "ctrl+r"), "again", "Answer again, beside the old answer", _CHAT, bar=7),
    Action("edit", ("e",), "edit", "Edit the chosen question and branch off", _CHAT, bar=8),
    Action(
        "sibling(-1)",
        ("left_square_bracket", "left"),
        "older",
        "The branch before this one",
        _CHAT,
        palette=False,
    ),
    Action(
        "sibling(1)",
        ("right_square_bracket", "right"),
        "newer",
        "The branch after this one",
        _CHAT,
        palette=False,
    ),
    Action("choose(-1)", ("k",), "up", "Choose the turn above", _CHAT, palette=False),
    Action("choose(1)", ("j",), "down", "Choose the turn below", _CHAT, palette=False),
    Action("earlier", ("p",), "earlier", "Show more of the turns before the first one", _CHAT),
    Action("thoughts", ("t",), "thoughts", "Unfold or fold the model's thoughts", _CHAT),
    Action("copy_code", ("c",), "copy code", "Copy the last code block of the chosen turn", _CHAT, bar=9),
    Action("copy_turn", ("y",), "copy", "Copy the chosen turn", _CHAT),
    Action("export", ("x",), "export", "Write this chat to a Markdown file", _CHAT),
    Action("rename", ("f",), "rename", "Give this chat another title", _CHAT),
    Action("delete_chat", ("D",), "delete", "Delete this chat, after asking", _CHAT),
    Action("compose", ("i",), "write", "Go to the field to write in", _CHAT, palette=False),
    Action("toggle_list", ("l",), "list", "Show or hide the list of chats", _CHAT),
    # ------------------------------------------------------------ models
    Action("load", ("enter",), "load", "Load the model as the sliders say", _MODELS, bar=1),
    Action("unload", ("u",), "unload", "Unload the model", _MODELS, bar=3),
    Action("context(-1)", ("left_square_bracket",), "less", "A shorter context", _MODELS, palette=False),
    Action(
        "context(1)",
        ("right_square_bracket",),
        "context",
        "A longer context",
        _MODELS,
        bar=4,
        palette=False,
        pair="[ ]",
    ),
    Action("kv_type", ("t",), "KV type", "The next type of the KV cache", _MODELS, bar=5, palette=False),
    Action("get_model", ("g",), "get", "Search for a model and pull it", _MODELS, bar=2),
    Action("import_model", ("a",), "add file", "Import a GGUF file by its path", _MODELS, bar=6),
    Action("pause_download", ("p",), "pause", "Pause the download that runs, or go on with it", _MODELS),
    Action("cancel_download", ("X",), "cancel", "Give the download up, after asking", _MODELS),
    Action("details", ("d",), "details", "All that is known of the model", _MODELS, bar=7),
    Action("toggle_fit", ("f",), "fit", "Change between list and fit where there is room for one", _MODELS),
    Action("delete_model", ("D",), "delete", "Delete the model's file, after asking", _MODELS),
    # ------------------------------------------------------------ monitor
    Action("window", ("w",), "5 min/1 h", "Plots over five minutes or an hour", _MONITOR, bar=1),
    Action("plots", ("b",), "braille/ASCII", "Draw plots in braille or in ASCII", _MONITOR, bar=2),
    # ------------------------------------------------------------ server
    Action("copy_address", ("a",), "copy address", "Copy the base URL", _SERVER, bar=1),
    Action("copy_key", ("K",), "copy key", "Copy the API key that clients must send", _SERVER),
    Action("copy_snippet", ("c",), "copy snippet", "Copy the snippet that is shown", _SERVER, bar=2),
    Action(
        "snippet(-1)",
        ("left_square_bracket", "left"),
        "previous",
        "The snippet before",
        _SERVER,
        palette=False,
    ),
    Action(
        "snippet(1)",
        ("right_square_bracket", "right"),
        "snippet",
        "The next snippet",
        _SERVER,
        bar=3,
        palette=False,
        pair="[ ]",
    ),
    Action("details", ("enter", "d"), "details", "All figures of the chosen request", _SERVER, bar=4),
    Action("only_errors", ("e",), "errors", "Show failed requests only, or all", _SERVER, bar=5),
    # ------------------------------------------------------------ settings
    Action("change", ("enter",), "change", "Change the chosen setting", _SETTINGS, bar=1),
    Action("reset", ("backspace",), "default", "Put the setting back to its default", _SETTINGS, bar=2),
    Action(
        "page(1)",
        ("right_square_bracket", "right"),
        "page",
        "Settings, doctor, themes",
        _SETTINGS,
        bar=3,
        palette=False,
        pair="[ ]",
    ),
    Action(
        "page(-1)",
        ("left_square_bracket", "left"),
        "previous page",
        "Settings, doctor, themes",
        _SETTINGS,
        palette=False,
    ),
    Action("doctor", ("d",), "doctor", "Check the machine and the service", _SETTINGS, bar=4),
    Action("themes", ("t",), "themes", "Choose the colours", _SETTINGS, bar=5),
)

_KEY_NAMES = {
    "slash": "/",
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "escape": "esc",
    "enter": "⏎",
    "backspace": "⌫",
    "left": "←",
    "right": "→",
}


def shown_key(key: str) -> str:
    """How a key is written for people: ``ctrl+p`` → ``^p``."""
    if key.startswith("ctrl+"):
        return "^" + key.removeprefix("ctrl+")
    if len(key) > 1 and key[0] == "f" and key[1:].isdigit():
        return key.upper()
    return _KEY_NAMES.get(key, key)


def within(scope: Scope) -> Iterator[Action]:
    """The actions of one scope, in the table's order."""
    return (action for action in ACTIONS if action.scope is scope)


def bindings(scope: Scope) -> list[BindingType]:
    """Textual bindings of one scope; ``escape`` and palette keys are shown nowhere by Textual itself."""
    return [Binding(",".join(a.keys), a.name, a.label, show=False) for a in within(scope)]


def bar(scope: Scope, *, typing: bool) -> tuple[Action, ...]:
    """What the key bar offers on a screen, in order; while text is typed only keys that still work."""
    offered = [
        a
        for a in ACTIONS
        if a.scope in (scope, Scope.EVERYWHERE) and a.bar is not None and (a.typing or not typing)
    ]
    return tuple(sorted(offered, key=lambda a: a.bar or 0))
