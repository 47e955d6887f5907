"""The terminal chat as a program: one screen, its colours, its way out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from edgeserve.tui.collecting import collect_now, collect_seldom
from edgeserve.tui.commands import COMMANDS
from edgeserve.tui.desk import Desk
from edgeserve.tui.screens.chat_screen import ChatScreen
from edgeserve.tui.themes import THEMES

_COLLECT_S = 30.0


class EdgeServeApp(App[None]):
    """`run()` returns when the user has left; what was written is on disk then."""

    CSS_PATH = "edgeserve.tcss"
    TITLE = "edgeserve"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = THEMES[desk.theme].name
        self._desk = desk
        self.chat = ChatScreen(desk)
        if desk.terminal.is_ascii:
            self.add_class("-ascii")

    def get_default_screen(self) -> Screen[None]:
        return self.chat

    def on_ready(self) -> None:
        collect_seldom()
        self.set_interval(_COLLECT_S, self._collect)

    def _collect(self) -> None:
        if not self.chat.talk.is_answering:
            collect_now()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette has what the slash has."""
        del screen
        for command in COMMANDS:
            name = command.name
            if not command.needs_argument:
                yield SystemCommand(
                    command.title, _help(name, command.keys), lambda name=name: self._do(name)
                )

    def _do(self, name: str) -> None:
        self.chat.action_command(name)

    def action_leave(self) -> None:
        self._do("quit")

    def action_help_quit(self) -> None:
        """Ctrl+C in a dialog goes back to the chat."""
        if len(self.screen_stack) > 1:
            self.pop_screen()


def _help(name: str, keys: tuple[str, ...]) -> str:
    return f"/{name}" + (f", {keys[0]}" if keys else "")
