"""What is drawn where the user wants no colours (no-color.org): bold, dim and reversed text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rich.color import Color as RichColor
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

_QUIET = RichColor.parse("bright_black")


class Colourless(LineFilter):
    """Takes every colour away; a background of its own becomes reversed text, grey becomes dim.

    Made for the theme of the terminal's own colours: what has a background there is marked.
    """

    def apply(self, segments: Sequence[Segment], background: Color) -> list[Segment]:
        del background
        return [
            Segment(text, style and _without_colour(style), control)
            for text, style, control in segments
        ]


@cache
def _without_colour(style: Style) -> Style:
    plain = style.without_color
    if style.bgcolor is not None and not style.bgcolor.is_default:
        return plain + Style(reverse=True)
    return plain + Style(dim=True) if style.color == _QUIET else plain
