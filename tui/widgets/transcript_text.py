"""What a selection in a transcript says, as it may be pasted elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from textual.selection import Selection

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
