"""A transcript's lines as strips for the screen, made once while nothing about them changes."""

from __future__ import annotations

from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from edgeserve.tui.lines import END, Line
from edgeserve.tui.look import Look
from edgeserve.tui.widgets.transcript_text import with_selection
from edgeserve.tui.widgets.turn_view import TurnView

MARGIN = 2
"""The bar that tells the role, and a space."""

_MAX_STRIPS = 1024


class Surroundings(NamedTuple):  # which compares in a tenth of the time
    """What a line looks like besides its own styles. `span` is the selected part of it."""

    role: str
    width: int
    is_marked: bool
    is_greyed: bool
    span: tuple[int, int] | None


def surroundings(
    view: TurnView, width: int, span: tuple[int, int] | None, *, is_marked: bool
) -> Surroundings:
    return Surroundings(view.role, width, is_marked, view.is_greyed, span)


class LineStrips:
    """For one look; `base` is what lies under every line."""

    def __init__(self, look: Look, base: Style, selection: Style) -> None:
        self.base = base
        self._look = look
        self._selection = selection
        self._made: dict[int, tuple[Line, Surroundings, Strip]] = {}
        self._hint: Strip | None = None

    def strip(self, y: int, line: Line, around: Surroundings) -> Strip:
        """Line `y` of all, which has that as its offset for a selection by mouse."""
        known = self._made.get(y)
        if known is not None and known[1] == around and known[0] == line:
            return known[2]
        if len(self._made) >= _MAX_STRIPS:
            self._made.clear()
        strip = self._draw(line, around).apply_offsets(0, y)
        self._made[y] = (line, around, strip)
        return strip

    def hint(self, width: int) -> Strip:
        """Over the last line, when there is more below it than there was."""
        if self._hint is not None and self._hint.cell_length == width:
            return self._hint
        text = f" {self._look.marks.down} new text below: ctrl+end "
        segments = Segment.apply_style([Segment(text, self._look.hint)], self.base)
        self._hint = Strip(segments).adjust_cell_length(width, self.base)
        return self._hint

    def _draw(self, line: Line, around: Surroundings) -> Strip:
        faint = self._look.dim if around.is_greyed else None
        segments = [self._bar(line, around), *line.segments()]
        strip = Strip(Segment.apply_style(segments, self.base, faint))
        if around.span is not None:
            strip = with_selection(strip, around.span, MARGIN, self._selection)
        return strip.adjust_cell_length(around.width, self.base)

    def _bar(self, line: Line, around: Surroundings) -> Segment:
        look = self._look
        if line is END:
            return Segment("  ")
        if around.is_marked:
            return Segment(f"{look.marks.selected_bar} ", look.selected)
        styles = {"user": look.user, "assistant": look.assistant}
        return Segment(f"{look.marks.bar} ", styles.get(around.role, look.dim))
