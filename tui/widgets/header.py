"""The line at the top: which chat, which model, how full its context is."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from edgeserve.tui.terminal_text import shown_line


class ChatHeader(Horizontal):
    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(id="model", markup=False)

    def show(self, title: str, model: str, *, is_nearly_full: bool) -> None:
        self.query_one("#title", Static).update(shown_line(title))
        about = self.query_one("#model", Static)
        about.update(shown_line(model))
        about.set_class(is_nearly_full, "-nearly-full")
