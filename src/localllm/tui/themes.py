"""The app's own colours: a dark, a light and a high-contrast theme.

One accent, one quiet grey for everything that is not the matter, and the three colours of a traffic light for states.
Beside Textual's tokens every theme sets `VARIABLES`; `DEFAULTS` gives them to Textual's own themes as well.
"""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="localllm-dark",
    primary="#5cc8b8",
    secondary="#9d8cf0",
    accent="#5cc8b8",
    foreground="#d5dbe3",
    background="#0e1116",
    surface="#12161d",
    panel="#1b212b",
    success="#86c98a",
    warning="#e2b35c",
    error="#ec6f74",
    dark=True,
    variables={
        "quiet": "#79859a",
        "line": "#2a323f",
        "line-focus": "#5cc8b8",
        "select": "#1d2b33",
        "thought": "#9d8cf0",
        "block-cursor-background": "#1d2b33",
        "block-cursor-foreground": "#d5dbe3",
        "block-cursor-text-style": "bold",
        "scrollbar": "#2a323f",
        "scrollbar-background": "#0e1116",
        "scrollbar-hover": "#3a4454",
        "scrollbar-active": "#5cc8b8",
    },
)

LIGHT = Theme(
    name="localllm-light",
    primary="#0d7c72",
    secondary="#6a4fd0",
    accent="#0d7c72",
    foreground="#20262e",
    background="#fbfaf7",
    surface="#f4f2ed",
    panel="#e9e6df",
    success="#2f7d3a",
    warning="#9a6200",
    error="#b3262f",
    dark=False,
    variables={
        "quiet": "#6b7280",
        "line": "#cfcbc2",
        "line-focus": "#0d7c72",
        "select": "#dcebe7",
        "thought": "#6a4fd0",
        "block-cursor-background": "#dcebe7",
        "block-cursor-foreground": "#20262e",
        "block-cursor-text-style": "bold",
        "scrollbar": "#cfcbc2",
        "scrollbar-background": "#fbfaf7",
        "scrollbar-hover": "#b5b0a5",
        "scrollbar-active": "#0d7c72",
    },
)

HIGH_CONTRAST = Theme(
    name="localllm-high-contrast",
    primary="#ffd400",
    secondary="#7fd4ff",
    accent="#ffd400",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1c1c1c",
    success="#5dff5d",
    warning="#ffb000",
    error="#ff6b6b",
    dark=True,
    variables={
        "quiet": "#c8c8c8",
        "line": "#9a9a9a",
        "line-focus": "#ffd400",
        "select": "#3a3300",
        "thought": "#7fd4ff",
        "block-cursor-background": "#ffd400",
        "block-cursor-foreground": "#000000",
        "block-cursor-text-style": "bold",
        "scrollbar": "#9a9a9a",
        "scrollbar-background": "#000000",
        "scrollbar-hover": "#ffffff",
        "scrollbar-active": "#ffd400",
    },
)

OWN = (DARK, LIGHT, HIGH_CONTRAST)

DEFAULTS = {
    "quiet": "#808080",
    "line": "#505050",
    "line-focus": "#00a0a0",
    "select": "#303030",
    "thought": "#8080e0",
}
