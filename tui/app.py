"""The terminal chat as a program: one screen, its colours, its way out."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import ClassVar, cast

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.driver import Driver
from textual.filter import LineFilter
from textual.screen import Screen
from textual.signal import Signal
from textual.widgets import Input

from edgeserve.tui.collecting import collect_now, collect_seldom
from edgeserve.tui.colourless import Colourless
from edgeserve.tui.commands import COMMANDS
from edgeserve.tui.desk import Desk
from edgeserve.tui.screens.chat_screen import ChatScreen
from edgeserve.tui.terminal_text import written
from edgeserve.tui.themes import THEMES

_COLLECT_S = 30.0

_SWITCH_S = 0.001
"""So long another thread may hold the interpreter while this one waits: a key's way to the screen
waits for it some ten times. With Python's own 5 ms the engine has no more tokens a second."""


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
        self.no_color = desk.terminal.is_colourless
        self.theme = THEMES["terminal" if self.no_color else desk.theme].name
        self._desk = desk
        self._colourless = [Colourless()]  # the same, or nothing made with it is found again
        self.chat = ChatScreen(desk)
        self._early: list[events.Event] | None = []
        if desk.terminal.is_ascii:
            self.add_class("-ascii")

    def get_default_screen(self) -> Screen[None]:
        return self.chat

    def on_mount(self) -> None:
        resumed = cast("Signal[App[None]]", self.app_resume_signal)  # pyright: ignore[reportUnknownMemberType]
        resumed.subscribe(self, self._draw_all)

    def on_load(self) -> None:
        sys.setswitchinterval(_SWITCH_S)

    def on_ready(self) -> None:
        self.chat.call_after_refresh(self._take_early)
        self.chat.call_after_refresh(collect_seldom)
        self.set_interval(_COLLECT_S, self._collect)

    def _collect(self) -> None:
        if not self.chat.talk.is_answering:
            collect_now()

    def refresh_css(self, animate: bool = True) -> None:
        """A theme that is chosen before there is a screen needs its variables only: styles are
        parsed for the screen anyway, and would be so twice."""
        if self.screen_stack:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())

    # --- the terminal ---------------------------------------------------------------------------

    def get_line_filters(self) -> Sequence[LineFilter]:
        return self._colourless if self.no_color else super().get_line_filters()

    def get_driver_class(self) -> type[Driver]:
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver":
            return found
        from edgeserve.tui.terminal_input import PasteDriver  # Windows has nothing of it

        return PasteDriver

    async def on_event(self, event: events.Event) -> None:
        """Fields of one line take a paste as it is; the composer looks after itself. What is typed
        before there is one waits for it."""
        if self._early is not None and isinstance(event, events.Key | events.Paste):
            self._early.append(event)
            return
        if isinstance(event, events.Paste) and isinstance(self.focused, Input):
            event.text = written(event.text, is_ascii=self.has_class("-ascii"))
        await super().on_event(event)

    async def _take_early(self) -> None:
        """In the order of typing; what comes meanwhile is put behind."""
        while self._early:
            await super().on_event(self._early.pop(0))
        self._early = None

    @contextmanager
    def suspend(self) -> Generator[None]:
        """Nothing is drawn meanwhile: nobody would take it, and the loop would wait for that. The
        terminal comes back whatever is raised inside."""
        raised: Exception | None = None
        with self.batch_update(), super().suspend():
            try:
                yield
            except Exception as error:
                raised = error
        self._draw_all()
        if raised is not None:
            raise raised

    def _draw_all(self, _: object = None) -> None:
        """Another program has written on the screen."""
        self.screen.refresh(layout=True)

    # --- commands, the end ----------------------------------------------------------------------

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, CommandPalette):
            placeholder = "Search for commands"
            self.push_screen(CommandPalette(placeholder=placeholder, id="--command-palette"))

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

    async def end(self) -> None:
        """As if the user had left."""
        if self.chat.is_open:
            await self.chat.leave()
        else:
            self.exit()

    def action_help_quit(self) -> None:
        """Ctrl+C in a dialog goes back to the chat."""
        if len(self.screen_stack) > 1:
            self.screen.dismiss(None)  # whoever asked goes on, without an answer


def _help(name: str, keys: tuple[str, ...]) -> str:
    return f"/{name}" + (f", {keys[0]}" if keys else "")
