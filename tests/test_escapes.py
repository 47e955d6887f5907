"""What a terminal makes of a strip's escapes: the same as of Textual's own, which are longer."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from rich.ansi import AnsiDecoder
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from edgeserve.tui.escapes import PLAIN, Escapes, change

_COLOURS = (None, "default", "red", "bright_black", "color(200)", "#102030", "#c0d0e0")
_ATTRIBUTES = ("bold", "dim", "italic", "underline", "reverse", "strike")

styles = st.builds(
    lambda color, bgcolor, on: Style(color=color, bgcolor=bgcolor, **dict.fromkeys(on, True)),
    st.sampled_from(_COLOURS),
    st.sampled_from(_COLOURS),
    st.lists(st.sampled_from(_ATTRIBUTES), max_size=2),
)
segments = st.lists(
    st.builds(Segment, st.sampled_from(("a", "bc", "  ", "")), st.none() | styles), max_size=8
)


def cells(escapes: str) -> list[tuple[str, Style]]:
    """The letters and how each looks."""
    text = AnsiDecoder().decode_line(escapes)
    console = Console()
    return [(letter, text.get_style_at_offset(console, at)) for at, letter in enumerate(text.plain)]


def written(strips: Sequence[Strip], system: ColorSystem = ColorSystem.TRUECOLOR) -> str:
    """One after the other; what is known of a strip is used again."""
    escapes, now, text = Escapes(), PLAIN, ""
    for strip in [*strips, *strips]:
        found = escapes.of(strip, system)
        text += change(now, found.first) + found.text
        now = found.last
    return text


@given(st.lists(segments, max_size=3))
def test_strips_look_as_textual_writes_them(lines: list[list[Segment]]):
    console = Console(color_system="truecolor")
    strips = [Strip(line) for line in lines]
    assert cells(written(strips)) == cells("".join(each.render(console) for each in strips) * 2)


def test_terminals_of_fewer_colours_get_theirs():
    strip = Strip([Segment("a", Style(color="#ff0000")), Segment("b", Style(color="#00ff00"))])
    assert written([strip]).count("38;2;") == 4
    wanted = "\x1b[38;5;196ma\x1b[38;5;46mb" * 2
    assert written([strip], ColorSystem.EIGHT_BIT) == wanted


def test_a_line_of_code_takes_half_the_bytes():
    background = Style(bgcolor="#202428")
    plain, keyword, number = "#e0e0e0", "#c0a0e0", "#d0b080"
    words = [("return", keyword), *((each, plain) for each in " x * "), ("2", number)]
    strip = Strip(
        Segment(word, background + Style(color=colour))
        for word, colour in [*words, (" " * 40, plain)]
    )
    textuals = strip.render(Console(color_system="truecolor")) * 2
    assert 2 * len(written([strip])) < len(textuals)


def test_links_are_told_to_the_terminal():
    link = Style(color="red", link="https://example.org")
    strip = Strip([Segment("a", Style(bold=True)), Segment("here", link), Segment("b")])
    text = written([strip])
    assert text.count("\x1b]8;id=") == 2
    assert text.count(";https://example.org\x1b\\") == 2
    assert text.endswith("\x1b]8;;\x1b\\b")
