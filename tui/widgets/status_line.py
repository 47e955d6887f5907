"""The line at the bottom: what goes on, and the keys that matter now."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from edgeserve.tui.terminal_text import shown_line
from edgeserve.tui.widgets.steady import SteadyLine


class StatusLine(Horizontal):
    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys: Sequence[tuple[str, str]] = ()

    def compose(self) -> ComposeResult:
        yield SteadyLine(keeps_width=True, id="doing")
        yield Static(id="keys", markup=False)

    def show_doing(self, text: str, *, is_busy: bool) -> None:
        doing = self.query_one("#doing", SteadyLine)
        doing.show(shown_line(text))
        doing.set_class(is_busy, "-busy")

    def show_keys(self, keys: Sequence[tuple[str, str]]) -> None:
        """Each key with what it does."""
        if keys == self._keys:
            return
        self._keys = keys
        parts: list[Content | tuple[str, str]] = []
        for key, does in keys:
            if parts:
                parts.append(("   ", ""))
            parts += [(key, "bold $foreground"), (f" {does}", "$quiet")]
        self.query_one("#keys", Static).update(Content.assemble(*parts))
