"""The line at the top: which chat, which model, how full its context is."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal

from edgeserve.tui.terminal_text import shown_line
from edgeserve.tui.widgets.steady import SteadyLine


class ChatHeader(Horizontal):
    def compose(self) -> ComposeResult:
        yield SteadyLine(keeps_width=True, id="title")
        yield SteadyLine(id="model")

    def show(self, title: str, model: str, *, is_nearly_full: bool) -> None:
        self.query_one("#title", SteadyLine).show(shown_line(title))
        about = self.query_one("#model", SteadyLine)
        about.show(shown_line(model))
        about.set_class(is_nearly_full, "-nearly-full")
