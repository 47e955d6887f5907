"""A turn cut into parts that are drawn one at a time, so that a long one costs what is seen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from edgeserve.tui.client import TokenFact
from edgeserve.tui.lines import BLANK, END, Line
from edgeserve.tui.markdown_blocks import Block, MarkdownSource, PlainSource
from edgeserve.tui.markdown_lines import MarkdownLines, codes_in
from edgeserve.tui.widgets.turn_view import (
    TurnView,
    foot_lines,
    head_lines,
    reasoning_lines,
    token_lines,
)


class Part:
    """Some lines of a turn. Until it is drawn, its height is a guess from its text."""

    __slots__ = ("_draw", "_text_length", "height", "is_drawn", "lines", "newlines")

    def __init__(self, draw: Callable[[int], list[Line]], text: str = "") -> None:
        self._draw = draw
        self._text_length = len(text)
        self.newlines = text.count("\n")
        self.lines: list[Line] = []
        self.height = 1
        self.is_drawn = False

    def forget(self, width: int) -> None:
        self.lines = []
        self.is_drawn = False
        self.height = max(1, self.newlines + 1, self._text_length // max(width, 1) + 1)

    def draw(self, width: int) -> None:
        if not self.is_drawn:
            self.lines = self._draw(width)
            self.height = len(self.lines)
            self.is_drawn = True


class TurnParts:
    """One turn's view as parts: who speaks and the reasoning, the text's blocks, what it took."""

    def __init__(self, view: TurnView, drawer: MarkdownLines, width: int) -> None:
        self.view: TurnView = view
        self.is_folded = True
        self.shows_tokens = False
        self.pointed = -1
        self.offsets: list[int] = [0]
        """Where each part begins, and the turn's height last."""
        self._drawer = drawer
        self._width = width
        self._pieces: list[str] = []  # text that has come since the last refresh
        self._reasoning: list[str] = []
        self._tokens: list[TokenFact] = []
        self._text = _source(view)
        self._text.feed(view.text)
        self._settled: list[Part] = []
        self._parts: list[Part] = []
        self.refresh()

    @property
    def height(self) -> int:
        return self.offsets[-1]

    def code_blocks(self) -> list[str]:
        """The code of each block, whose pieces are put together."""
        codes: list[str] = []
        for block in [*self._text.settled, *self._text.unsettled()]:
            if block.kind == "markdown":
                codes += codes_in(block)
            elif block.kind == "code" and block.begins:
                codes.append(block.text)
            elif block.kind == "code":
                codes[-1] += "\n" + block.text
        return codes

    def is_fold(self, y: int) -> bool:
        """Whether line `y` of the turn is the one that folds its reasoning."""
        look, width = self._drawer.look, self._width
        return bool(self.view.reasoning) and y == len(head_lines(self.view, look, width))

    def append(self, text: str, tokens: Sequence[TokenFact], *, is_reasoning: bool) -> None:
        """Takes text in; `refresh` shows it."""
        (self._reasoning if is_reasoning else self._pieces).append(text)
        self._tokens += tokens

    def change(self, view: TurnView) -> None:
        """Another state of the same turn. Text that only grew costs what is new."""
        self._take()
        if view.role != self.view.role or not view.text.startswith(self.view.text):
            self._text = _source(view)
            self._settled = []
            self._text.feed(view.text)
        else:
            self._text.feed(view.text[len(self.view.text) :])
        tokens = view.tokens or self.view.tokens
        self.view = replace(view, tokens=tokens)
        self.refresh()

    def redraw(self, drawer: MarkdownLines, width: int) -> None:
        """Another width or look: nothing is drawn until it is asked for."""
        self._drawer = drawer
        self._width = width
        for part in self._settled:
            part.forget(width)
        self.refresh()

    def refresh(self) -> None:
        """Makes the parts that may have changed anew."""
        self._take()
        parts = [self._made(self._head, self.view.reasoning if not self.is_folded else "")]
        if self.shows_tokens and self.view.tokens:
            parts.append(self._made(self._token_lines, self.view.text))
        else:
            for block in self._text.settled[len(self._settled) :]:
                self._settled.append(self._body_part(block, is_first=not self._settled))
            parts += self._settled
            for block in self._text.unsettled():
                parts.append(self._body_part(block, is_first=len(parts) == 1))
        parts.append(self._made(self._foot))
        self._parts = parts
        self._measure()

    def ensure(self, first: int, last: int) -> bool:
        """Draws the parts that have lines `first` to `last`; whether a height changed."""
        before = self.height
        index = max(0, bisect_right(self.offsets, first) - 1)
        for part in self._parts[index:]:
            if first > last:
                break
            part.draw(self._width)
            first += part.height
        self._measure()
        return self.height != before

    def draw_one(self) -> bool:
        """Draws one part that is not yet; False if there is none."""
        for part in self._parts:
            if not part.is_drawn:
                part.draw(self._width)
                self._measure()
                return True
        return False

    def line(self, y: int) -> Line:
        """A line of a part that was drawn; a blank one where a guess was too high."""
        index = bisect_right(self.offsets, y) - 1
        part = self._parts[index]
        part_y = y - self.offsets[index]
        return part.lines[part_y] if part_y < len(part.lines) else BLANK

    def place_of(self, y: int) -> tuple[int, float]:
        """Which part line `y` is in, and how far down, from 0 to 1: the same at any width."""
        index = min(bisect_right(self.offsets, y) - 1, len(self._parts) - 1)
        return index, (y - self.offsets[index]) / max(1, self._parts[index].height)

    def line_at(self, place: tuple[int, float]) -> int:
        index = min(place[0], len(self._parts) - 1)
        return self.offsets[index] + int(place[1] * self._parts[index].height + 0.001)

    def _take(self) -> None:
        if self._pieces or self._reasoning or self._tokens:
            new = "".join(self._pieces)
            self._text.feed(new)
            self.view = replace(
                self.view,
                text=self.view.text + new,
                reasoning=self.view.reasoning + "".join(self._reasoning),
                tokens=(*self.view.tokens, *self._tokens) if self._tokens else self.view.tokens,
            )
            self._pieces, self._reasoning, self._tokens = [], [], []

    def _measure(self) -> None:
        self.offsets = [0, *accumulate(part.height for part in self._parts)]

    def _made(self, draw: Callable[[int], list[Line]], text: str = "") -> Part:
        part = Part(draw, text)
        part.forget(self._width)
        return part

    def _body_part(self, block: Block, *, is_first: bool) -> Part:
        gap = [] if is_first or not block.begins else [BLANK]
        return self._made(lambda width: [*gap, *self._drawer.block(block, width)], block.text)

    def _head(self, width: int) -> list[Line]:
        look = self._drawer.look
        return [
            *head_lines(self.view, look, width),
            *reasoning_lines(self.view, look, width, is_folded=self.is_folded),
        ]

    def _token_lines(self, width: int) -> list[Line]:
        return token_lines(self.view.tokens, self._drawer.look, width, self.pointed)

    def _foot(self, width: int) -> list[Line]:
        return [*foot_lines(self.view, self._drawer.look, width), END]


def _source(view: TurnView) -> MarkdownSource | PlainSource:
    """What a person wrote means its lines; what a model wrote is Markdown."""
    return PlainSource() if view.role == "user" else MarkdownSource()
