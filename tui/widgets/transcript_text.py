"""A selection in a transcript: how it looks, and what it says when it is pasted elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip

from edgeserve.tui.lines import Line


def selected_text(lines: Sequence[tuple[int, Line]], selection: Selection, margin: int) -> str:
    """The text of lines, each with its place, where `selection` covers them.

    Offsets count characters from the left edge, `margin` of them before a line's own. What is
    decoration is left out, and lines that wrapping made are one again.
    """
    text = ""
    for y, line in lines:
        span = selection.get_span(y)
        if span is None:
            continue
        first = max(span[0] - margin, line.decoration)
        last = None if span[1] == -1 else max(0, span[1] - margin)
        part = line.text[first:last]
        part = part if last is not None else part.rstrip()
        text += part if not text else line.joint + part
    return text


def with_selection(strip: Strip, span: tuple[int, int], margin: int, style: Style) -> Strip:
    """The strip with characters `span` of it marked; an end of -1 is the line's."""
    text = strip.text
    first = cell_len(text[: max(span[0], margin)])
    last = cell_len(text if span[1] == -1 else text[: max(span[1], margin)])
    if last <= first:
        return strip
    inside = strip.crop(first, last)
    marked = [Segment(text, (own or Style.null()) + style) for text, own, _ in inside]
    return Strip.join([strip.crop(0, first), Strip(marked), strip.crop(last)])
