"""NO_COLOR: what was told by colours is told by bold, dim and reversed text."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from edgeserve.terminal import Terminal
from edgeserve.tui.colourless import Colourless
from tests.chat_app import Table, drive


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("bold yellow", "bold"),
        ("bright_black", "dim"),
        ("black on white", "reverse"),
        ("red on default", ""),
        ("underline #dba763", "underline"),
        ("reverse cyan on black", "reverse"),
    ],
)
def test_a_style_without_its_colours(style: str, expected: str):
    (drawn,) = Colourless().apply([Segment("x", Style.parse(style))], Color(0, 0, 0))
    assert drawn.style is not None
    assert drawn.style.color is None
    assert drawn.style.bgcolor is None
    assert str(drawn.style) == (expected or "none")


def test_no_colour_reaches_the_terminal(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hello")
        for key in ("f2", "f1", "escape", "f4", "escape", "ctrl+p"):
            await table.pilot.press(key)
            await table.pilot.pause()
            for strip in table.app.screen._compositor.render_strips():
                for segment in strip:
                    colours = segment.style and (segment.style.color, segment.style.bgcolor)
                    assert all(colour is None or colour.is_default for colour in colours or ())

    drive(tmp_path, body, terminal=Terminal(is_colourless=True))


def test_there_is_no_theme_to_choose(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.type("/theme dark", "enter")
        await table.shows("NO_COLOR is set")
        assert table.app.theme == "terminal"

    drive(tmp_path, body, terminal=Terminal(is_colourless=True))
