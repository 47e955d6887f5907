"""Colours: warm and quiet, one accent. Dark, light, and the terminal's own sixteen."""

from __future__ import annotations

from textual.theme import BUILTIN_THEMES, Theme

DARK = Theme(
    name="edgeserve-dark",
    dark=True,
    background="#191816",
    surface="#21201d",
    panel="#2b2926",
    foreground="#dbd6cc",
    primary="#93b3a5",
    secondary="#dba763",
    accent="#dba763",
    success="#9bb87c",
    warning="#d8b06a",
    error="#e58a7b",
    variables={
        "quiet": "#a89f92",
        "border": "#dba763",
        "border-blurred": "#3a3733",
        "block-cursor-background": "#3b352c",
        "block-cursor-foreground": "#f0e6d6",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#2b2926",
        "input-selection-background": "#4a4032",
        "scrollbar": "#3a3733",
        "scrollbar-hover": "#55504a",
        "scrollbar-active": "#dba763",
        "scrollbar-background": "#191816",
        "scrollbar-background-hover": "#191816",
        "scrollbar-background-active": "#191816",
        "footer-background": "#191816",
    },
)

LIGHT = Theme(
    name="edgeserve-light",
    dark=False,
    background="#faf8f4",
    surface="#f1eee7",
    panel="#e7e2d8",
    foreground="#2d2a26",
    primary="#2f6654",
    secondary="#8d5208",
    accent="#8d5208",
    success="#4a6b1f",
    warning="#7d5a0c",
    error="#a8321f",
    variables={
        "quiet": "#6a6256",
        "border": "#8d5208",
        "border-blurred": "#d3ccbe",
        "block-cursor-background": "#ebdfc9",
        "block-cursor-foreground": "#2d2a26",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#ece7dc",
        "input-selection-background": "#e6d5b8",
        "scrollbar": "#d3ccbe",
        "scrollbar-hover": "#b5ac9b",
        "scrollbar-active": "#8d5208",
        "scrollbar-background": "#faf8f4",
        "scrollbar-background-hover": "#faf8f4",
        "scrollbar-background-active": "#faf8f4",
        "footer-background": "#faf8f4",
    },
)

_ANSI = BUILTIN_THEMES["ansi-dark"]

TERMINAL = Theme(
    name="terminal",
    ansi=True,
    dark=True,
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    foreground="ansi_default",
    primary="ansi_cyan",
    secondary="ansi_yellow",
    accent="ansi_yellow",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_red",
    variables={
        **_ANSI.variables,
        "quiet": "ansi_bright_black",
        "border": "ansi_yellow",
        "border-blurred": "ansi_bright_black",
        "scrollbar": "ansi_bright_black",
        "scrollbar-hover": "ansi_white",
        "scrollbar-active": "ansi_yellow",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
    },
)

DEFAULT = "dark"
THEMES = {"dark": DARK, "light": LIGHT, "terminal": TERMINAL}
"""By the names that `/theme` takes."""
