"""The line at the bottom: what goes on, and as many of the keys that matter as have room beside."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from edgeserve.tui.terminal_text import shown_line
from edgeserve.tui.widgets.steady import SteadyLine

_BETWEEN = 3


class StatusLine(Horizontal):
    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._doing = ""
        self._keys: Sequence[tuple[str, str]] = ()
        self._drawn: Sequence[tuple[str, str]] = ()

    def compose(self) -> ComposeResult:
        yield SteadyLine(keeps_width=True, id="doing")
        yield Static(id="keys", markup=False)

    def show_doing(self, text: str, *, is_busy: bool) -> None:
        doing = self.query_one("#doing", SteadyLine)
        self._doing = shown_line(text)
        doing.show(self._doing)
        doing.set_class(is_busy, "-busy")
        self._draw_keys()

    def show_keys(self, keys: Sequence[tuple[str, str]]) -> None:
        """Each key with what it does; the first ones matter most."""
        self._keys = keys
        self._draw_keys()

    def on_resize(self) -> None:
        self._draw_keys()

    def _draw_keys(self) -> None:
        """Only where they are others: it lays out the line."""
        room = self.content_size.width - cell_len(self._doing)
        widths = [cell_len(f"{key} {does}") + _BETWEEN for key, does in self._keys]
        fitting = [key for i, key in enumerate(self._keys) if sum(widths[: i + 1]) <= room]
        if fitting == self._drawn:
            return
        self._drawn = fitting
        parts: list[tuple[str, str]] = []
        for key, does in fitting:
            if parts:
                parts.append((" " * _BETWEEN, ""))
            parts += [(key, "bold $foreground"), (f" {does}", "$quiet")]
        self.query_one("#keys", Static).update(Content.assemble(*parts))
