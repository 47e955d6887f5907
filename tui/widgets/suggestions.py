"""A few lines above the composer: commands and paths that go on from what is typed."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from edgeserve.frozen import frozen
from edgeserve.tui.terminal_text import shown_line

_MAX_LINES = 8
_MAX_LABEL = 40


@frozen
class Suggestion:
    """`text` goes in place of the last `replaces` characters."""

    text: str
    label: str
    note: str
    replaces: int


class Suggestions(Static):
    """One of them is marked. Never focused: the composer keeps the cursor."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._all: Sequence[Suggestion] = ()
        self._at = 0
        self.display = False

    @property
    def marked(self) -> Suggestion | None:
        return self._all[self._at] if self._all else None

    def offer(self, suggestions: Sequence[Suggestion]) -> None:
        if not suggestions and not self._all:
            return
        self._all, self._at = suggestions, 0
        self.display = bool(suggestions)
        self._draw()

    def move(self, step: int) -> None:
        if self._all:
            self._at = (self._at + step) % len(self._all)
            self._draw()

    def _draw(self) -> None:
        first = max(0, min(self._at - _MAX_LINES // 2, len(self._all) - _MAX_LINES))
        wide = min(max((len(each.label) for each in self._all), default=0), _MAX_LABEL)
        lines: list[Content] = []
        for i, each in enumerate(self._all[first : first + _MAX_LINES], first):
            label = shown_line(each.label)[:_MAX_LABEL].ljust(wide + 2)
            is_marked = i == self._at
            lines.append(
                Content.assemble(
                    (label, "bold $accent" if is_marked else "$foreground"),
                    (shown_line(each.note), "$foreground" if is_marked else "$quiet"),
                )
            )
        self.update(Content("\n").join(lines))
