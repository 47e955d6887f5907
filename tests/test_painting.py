"""What goes to the terminal when little has changed: all of that, and nothing else is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.style import Style
from textual._compositor import LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from edgeserve.tui.painting import Painting
from edgeserve.tui.widgets.composer import Composer
from edgeserve.tui.widgets.transcript import Transcript
from tests.chat_app import Table, drive
from tests.fake_chat_client import words

_STORY = (
    "The *first* part, with 日本語 and an emoji 🙂 in it.\n\n- one\n- two\n\n```python\n"
    "def f(x):\n    return x * 2\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
)

Cell = tuple[str, Style]


class Terminal:
    """The cells of a terminal that is told what a screen's compositor tells it."""

    def __init__(self, table: Table) -> None:
        self._compositor = table.chat._compositor
        self._cells: dict[tuple[int, int], Cell] = self._wanted()
        self.num_paintings = 0
        render = self._compositor.render_update

        def watched(*given: object, **named: object) -> object:
            update = render(*given, **named)  # type: ignore[arg-type]
            self._take(update)
            return update

        self._compositor.render_update = watched  # type: ignore[method-assign]

    def is_right(self) -> bool:
        """Whether it shows what a terminal would that had been painted anew."""
        return self._cells == self._wanted()

    def _wanted(self) -> dict[tuple[int, int], Cell]:
        cells: dict[tuple[int, int], Cell] = {}
        for y, strip in enumerate(self._compositor.render_strips()):
            cells |= _cells(y, 0, [strip])
        return cells

    def _take(self, update: object) -> None:
        if isinstance(update, LayoutUpdate):
            for y, strips in enumerate(update.strips):
                self._cells |= _cells(y, 0, strips)
        elif isinstance(update, Painting):
            self.num_paintings += 1
            for piece in update.pieces:
                self._cells |= _cells(piece.y, piece.x, [piece.strip])


def _cells(y: int, x: int, strips: Iterable[Strip]) -> dict[tuple[int, int], Cell]:
    found: dict[tuple[int, int], Cell] = {}
    for strip in strips:
        for text, style, _ in strip:
            plain = (style or Style.null()).clear_meta_and_links()
            for letter in text:
                width = cell_len(letter)
                for at in range(x, x + width):
                    found[y, at] = (letter if at == x else "", plain)
                x += width
    return found


@pytest.mark.parametrize("size", [(160, 40), (80, 24), (50, 14)])
def test_the_terminal_shows_what_painting_all_of_it_would_show(
    tmp_path: Path, size: tuple[int, int]
):
    async def body(table: Table) -> None:
        await table.ask("A first question")
        terminal = Terminal(table)
        table.client.will_answer(words(_STORY * 3))
        table.client.hold()
        await table.type("Tell me", "enter")
        for key in "a/b\u4e2d":
            await table.client.let(9)
            await table.type("", key)
            await table.until(terminal.is_right)
        for keys in (
            ("backspace", "backspace", "backspace", "backspace", "/", "m"),  # suggestions
            ("escape", "backspace", "backspace"),
            ("f2",),  # the list, over the chat where that is narrow
            ("escape",),
            ("f3",),  # the cockpit
            ("ctrl+t",),
            ("f3",),
            ("tab", "up", "enter"),
            ("pageup", "pageup"),
            ("end", "tab"),
        ):
            await table.type("", *keys)
            await table.until(terminal.is_right)
        await table.client.release()
        await table.until(lambda: not table.chat.talk.is_answering)
        await table.until(terminal.is_right)
        assert terminal.num_paintings > 20

    drive(tmp_path, body, size=size)


@contextmanager
def _drawn_lines() -> Iterator[list[tuple[Widget, int]]]:
    """The widgets that are asked for lines, and for how many."""
    asked: list[tuple[Widget, int]] = []
    before = {kind: kind.render_lines for kind in (Widget, Transcript, Composer)}

    def watch(kind: type[Widget]) -> None:
        render = before[kind]

        def watched(self: Widget, crop: Region) -> list[Strip]:
            if type(self).render_lines is watched:  # not by way of a subclass's
                asked.append((self, crop.height))
            return render(self, crop)

        kind.render_lines = watched  # type: ignore[method-assign]

    for kind in before:
        watch(kind)
    try:
        yield asked
    finally:
        for kind, render in before.items():
            kind.render_lines = render  # type: ignore[method-assign]


def test_a_key_draws_the_line_it_is_typed_in(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("A first question")
        await table.type("a")
        composer = table.chat.composer
        with _drawn_lines() as asked:
            await table.type("b")
            await table.until(lambda: asked)
        assert {(widget, lines) for widget, lines in asked if widget.id != "doing"} == {
            (composer, 1)
        }

    drive(tmp_path, body, size=(160, 40))


def test_text_draws_the_lines_that_it_changes(tmp_path: Path):
    async def body(table: Table) -> None:
        table.client.will_answer(words("one two three four"))
        table.client.hold()
        await table.type("Go on", "enter")
        await table.client.let(3)
        await table.shows("one")
        with _drawn_lines() as asked:
            await table.client.let(1)
            await table.until(lambda: any(widget is table.chat.transcript for widget, _ in asked))
        other = {"doing", "composer", "model"}  # what goes on, the cursor, the meter
        drawn = {(widget, lines) for widget, lines in asked if widget.id not in other}
        assert drawn == {(table.chat.transcript, 1)}
        await table.client.release()

    drive(tmp_path, body, size=(160, 40))
