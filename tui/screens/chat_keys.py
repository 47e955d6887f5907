"""The chat screen's keys: those of the table of commands, and those that are no command's."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from edgeserve.tui.commands import COMMANDS

_OWN = ("escape", "ctrl+q")
"""Stopping is more than /stop, and leaving works in every dialog."""

_READING = {"pageup": "page_up", "pagedown": "page_down", "ctrl+home": "home", "ctrl+end": "end"}

CHAT_KEYS: list[BindingType] = [
    *(
        Binding(key, f"command('{command.name}')", command.title, show=False, priority=True)
        for command in COMMANDS
        for key in command.keys
        if " " not in key and key not in _OWN
    ),
    *(Binding(key, f"read('{way}')", show=False, priority=True) for key, way in _READING.items()),
    Binding("escape", "escape", show=False),
    Binding("ctrl+c", "interrupt", show=False, priority=True),
    Binding("y", "command('copy')", show=False),
    Binding("e", "command('edit')", show=False),
    Binding("r", "command('regenerate')", show=False),
]
