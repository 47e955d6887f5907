"""What is painted: the cells that changed, where Textual draws each widget around them in full.

For each key it would draw forty lines of transcript above the one that changed, and for each frame
of text all that lies behind it: most of what a key's echo and a frame cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rich.console import COLOR_SYSTEMS, Console
from textual._compositor import Compositor, CompositorUpdate
from textual.geometry import Region
from textual.strip import Strip

from edgeserve.tui.escapes import PLAIN, Escapes, change


class Piece(NamedTuple):
    """What stands in line `y` from column `x` on."""

    y: int
    x: int
    strip: Strip


class Painting(CompositorUpdate):
    """Pieces of the screen, as they are to be written."""

    def __init__(self, pieces: Iterable[Piece], escapes: Escapes) -> None:
        self.pieces: Sequence[Piece] = tuple(pieces)
        self._escapes = escapes

    def render_segments(self, console: Console) -> str:
        system = COLOR_SYSTEMS[console.color_system or "truecolor"]
        parts = ["\x1b[0m"]
        now = PLAIN
        for y, x, strip in self.pieces:
            found = self._escapes.of(strip, system)
            parts += [f"\x1b[{y + 1};{x + 1}H", change(now, found.first), found.text]
            now = found.last
        return "".join([*parts, "\x1b[0m"])


Row = dict[int, int]
"""The parts of a line that are to be painted: where each begins and where it is painted to. The
edges of widgets are between parts, so that each is one widget's, the foremost there."""


class LeanCompositor(Compositor):
    """Asks widgets front to back, and only for lines in which something is still missing."""

    def __init__(self) -> None:
        super().__init__()
        self._escapes = Escapes()

    def render_partial_update(self) -> Painting | None:  # pyright: ignore[reportIncompatibleMethodOverride]  a CompositorUpdate all the same
        screen = self.size.region
        regions = [seen for each in self._dirty_regions if (seen := each.intersection(screen))]
        self._dirty_regions.clear()
        if not regions:
            return None
        return Painting(self._pieces(self._missing(regions)), self._escapes)

    def _missing(self, regions: Sequence[Region]) -> dict[int, Row]:
        missing: dict[int, Row] = {}
        for y, first, after in self._regions_to_spans(regions):
            row = missing.setdefault(y, {})
            for start, end in pairwise(self.cuts[y]):
                if start < after and end > first:
                    row[start] = min(end, after)
        return missing

    def _pieces(self, missing: dict[int, Row]) -> Iterator[Piece]:
        for widget, (region, clip) in self.visible_widgets.items():
            if not missing:
                return
            visible = region.intersection(clip)
            lines = [y for y in visible.line_range if _lacks(missing.get(y), visible)]
            if not lines:
                continue
            top = lines[0]
            crop = Region(visible.x, top, visible.width, lines[-1] + 1 - top)
            strips = widget.render_lines(crop.translate(-region.offset))
            for y in lines:
                if y - top < len(strips):
                    yield from self._take(strips[y - top], visible, y, missing[y])
                if not missing[y]:
                    del missing[y]

    def _take(self, strip: Strip, visible: Region, y: int, row: Row) -> Iterator[Piece]:
        """What a widget shows of the parts that nothing before it had."""
        first, last = visible.column_span
        starts = [cut for cut in self.cuts[y] if first <= cut <= last]
        parts = strip.divide([cut - first for cut in starts[1:]])
        for start, part in zip(starts, parts, strict=False):
            if start in row:
                yield Piece(y, start, part.crop(0, row.pop(start) - start))


def _lacks(row: Row | None, visible: Region) -> bool:
    if row is None:
        return False
    first, after = visible.column_span
    return any(first <= start < after for start in row)
