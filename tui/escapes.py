"""Strips as a terminal reads them: codes only for what differs from the style before.

Textual writes each piece of text with all codes of its style, and takes them back after it: three
quarters of what goes to the terminal, which reads that before it reads the echo of a key.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from rich.color import Color, ColorSystem
from rich.style import Style
from textual.strip import Strip

from edgeserve.frozen import frozen

_MAX_STRIPS = 2048


class Codes(NamedTuple):
    """What a terminal is told of a style."""

    attributes: str
    colour: str
    background: str


PLAIN = Codes("", "", "")


@frozen
class Escaped:
    """A strip for the terminal: `text` after the codes of its `first` style; ends in its `last`."""

    first: Codes
    text: str
    last: Codes


class Escapes:
    """For strips that are drawn again and again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Strip, ColorSystem, Escaped]] = {}

    def of(self, strip: Strip, system: ColorSystem) -> Escaped:
        known = self._known.get(id(strip))
        if known is not None and known[1] is system:
            return known[2]
        if len(self._known) >= _MAX_STRIPS:
            self._known.clear()
        found = _escaped(strip, system)
        self._known[id(strip)] = strip, system, found
        return found


def change(before: Codes, after: Codes) -> str:
    """From one style to the other. What is to be the terminal's own again, and any attribute, can
    only be had by taking back all."""
    if before == after:
        return ""
    pairs = list(zip(before, after, strict=True))
    is_less = any(old and not new for old, new in pairs)
    if is_less or (before.attributes and before.attributes != after.attributes):
        return f"\x1b[{';'.join(['0', *filter(None, after)])}m"
    return f"\x1b[{';'.join(new for old, new in pairs if new != old)}m"


def _escaped(strip: Strip, system: ColorSystem) -> Escaped:
    parts: list[str] = []
    first: Codes | None = None
    now = PLAIN
    for text, style, _ in strip:
        if not text:
            continue
        link = style is not None and bool(style.link)
        codes = PLAIN if style is None or link else _codes(style, system)
        if first is None:
            first = now = codes
        parts.append(change(now, codes))
        parts.append(Strip.render_style(style, text, system) if style and link else text)
        now = codes
    return Escaped(first or PLAIN, "".join(parts), now)


@lru_cache(maxsize=4096)
def _codes(style: Style, system: ColorSystem) -> Codes:
    colour, background = _of_colour(style.color, system), _of_colour(style.bgcolor, system, False)
    both = [codes for codes in (colour, background) if codes]
    attributes = Strip.render_ansi(style, system).removesuffix(";".join(both)).removesuffix(";")
    return Codes(attributes, colour, background)


def _of_colour(colour: Color | None, system: ColorSystem, foreground: bool = True) -> str:
    if colour is None:
        return ""
    return ";".join(colour.downgrade(system).get_ansi_codes(foreground))
