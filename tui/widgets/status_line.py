"""The line at the bottom: what goes on, and the keys that matter now."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from edgeserve.tui.terminal_text import shown_line


class StatusLine(Horizontal):
    def compose(self) -> ComposeResult:
        yield Static(id="doing", markup=False)
        yield Static(id="keys", markup=False)

    def show_doing(self, text: str, *, is_busy: bool) -> None:
        doing = self.query_one("#doing", Static)
        doing.update(shown_line(text))
        doing.set_class(is_busy, "-busy")

    def show_keys(self, keys: Sequence[tuple[str, str]]) -> None:
        """Each key with what it does."""
        parts: list[Content | tuple[str, str]] = []
        for key, does in keys:
            if parts:
                parts.append(("   ", ""))
            parts += [(key, "bold $foreground"), (f" {does}", "$quiet")]
        self.query_one("#keys", Static).update(Content.assemble(*parts))
