"""A turn cut into parts that are drawn one at a time, so that a long one costs what is seen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from edgeserve.chats.records import TurnState
from edgeserve.tui.client import TokenFact
from edgeserve.tui.lines import BLANK, END, Line, Span
from edgeserve.tui.look import Look
from edgeserve.tui.markdown_block import Block
from edgeserve.tui.markdown_blocks import MarkdownSource, PlainSource
from edgeserve.tui.markdown_lines import MarkdownLines
from edgeserve.tui.widgets.turn_tokens import token_lines
from edgeserve.tui.widgets.turn_view import TurnView, fold_lines, foot_lines, head_lines


class Part:
    """Some lines of a turn. Until it was drawn once, its height is a guess from its text."""

    __slots__ = ("_draw", "_guess", "_lines", "_newlines", "height", "is_measured")

    def __init__(self, draw: Callable[[int], list[Line]], text: str, width: int) -> None:
        self._draw = draw
        self._guess = len(text)
        self._newlines = text.count("\n")
        self.forget(width)

    def forget(self, width: int) -> None:
        """The width or the look is another one."""
        self._lines: list[Line] | None = None
        self.is_measured = False
        self.height = max(self._newlines, self._guess // max(width, 1)) + 1

    def lines(self, width: int) -> list[Line]:
        if self._lines is None:
            self._lines = self._draw(width)
            self.height = len(self._lines)
            self.is_measured = True
        return self._lines

    def measure(self, width: int) -> None:
        """Finds its height and keeps no lines: nobody has looked at it yet."""
        self.lines(width)
        self._lines = None


class TurnParts:
    """One turn's view as parts: who speaks, the reasoning, the text's blocks, what it took."""

    def __init__(self, view: TurnView, drawer: MarkdownLines, width: int) -> None:
        self.view: TurnView = view
        self.is_folded = True
        self.shows_tokens = False
        self.pointed = -1
        self.offsets: list[int] = [0]
        """Where each part begins, and the turn's height last."""
        self._drawer = drawer
        self._width = width
        self._text: list[str] = []  # what has come since the last refresh
        self._reasoning: list[str] = []
        self._tokens: list[TokenFact] = []
        self._body = _Body(view, drawer.look)
        self._thought = PlainSource(is_ascii=drawer.look.marks.is_ascii)
        self._thought.feed(view.reasoning)
        self._parts: list[Part] = []
        self._num_measured = 0  # all parts before are
        self.refresh()

    @property
    def height(self) -> int:
        return self.offsets[-1]

    def is_fold(self, y: int) -> bool:
        """Whether line `y` of the turn is the one that folds its reasoning."""
        head = head_lines(self.view, self._drawer.look, self._width)
        return bool(self.view.reasoning) and y == len(head)

    def append(self, text: str, tokens: Sequence[TokenFact], *, is_reasoning: bool) -> None:
        """Takes text in; `refresh` shows it."""
        (self._reasoning if is_reasoning else self._text).append(text)
        self._tokens += tokens

    def change(self, view: TurnView) -> None:
        """Another state of the same turn. Text that only grew costs what is new."""
        self._take()
        view = replace(view, tokens=view.tokens or self.view.tokens)
        if view == self.view:
            return
        if view.role == self.view.role and view.text.startswith(self.view.text):
            self._body.feed(view.text[len(self.view.text) :])
        else:
            self._body = _Body(view, self._drawer.look)
        if view.reasoning != self.view.reasoning:
            self._thought = PlainSource(is_ascii=self._drawer.look.marks.is_ascii)
            self._thought.feed(view.reasoning)
        self.view = view
        self.refresh()

    def drop(self) -> None:
        """Lets go of what refers back to it: nobody shows this turn any more."""
        self._parts = []
        self._body = _Body(self.view, self._drawer.look)

    def redraw(self, drawer: MarkdownLines, width: int) -> None:
        """Another width or look: nothing is drawn until it is asked for."""
        self._drawer = drawer
        self._width = width
        self._body.forget(width)
        self.refresh()

    def refresh(self) -> None:
        """Makes the parts that may have changed anew."""
        self._take()
        parts = [self._made(self._head)]
        if not self.is_folded:
            blocks = [*self._thought.settled, *self._thought.unsettled()]
            parts += [self._made(self._thought_lines(block), block.text) for block in blocks]
        if self.view.reasoning.strip() and self.view.text:
            parts.append(self._made(lambda _: [BLANK]))
        if not self._body.is_read:
            parts.append(self._made(lambda _: [], self.view.text))
        elif self.shows_tokens and self.view.tokens:
            parts.append(self._made(self._token_lines, self.view.text))
        else:
            is_growing = self.view.state is TurnState.STREAMING
            parts += self._body.parts(self._block_part, is_growing=is_growing)
        parts.append(self._made(self._foot))
        self._parts = parts
        self._num_measured = 0
        self._measure()

    def ensure(self, first: int, last: int) -> bool:
        """Draws the parts that have lines `first` to `last`; whether a height changed."""
        before = self.offsets
        self._read()
        index = max(0, bisect_right(self.offsets, first) - 1)
        y = self.offsets[index]
        for part in self._parts[index:]:
            if y > last:
                break
            part.lines(self._width)
            y += part.height
        self._measure()
        return self.offsets != before

    def measure_one(self) -> bool:
        """Measures one part whose height is a guess; False if there is none."""
        self._read()
        while self._num_measured < len(self._parts):
            part = self._parts[self._num_measured]
            self._num_measured += 1
            if not part.is_measured:
                part.measure(self._width)
                return True
        self._measure()
        return False

    def line(self, y: int) -> Line:
        """A line; a blank one where a guess was too high."""
        index = bisect_right(self.offsets, y) - 1
        lines = self._parts[index].lines(self._width)
        part_y = y - self.offsets[index]
        return lines[part_y] if part_y < len(lines) else BLANK

    def place_of(self, y: int) -> tuple[int, float]:
        """Which part line `y` is in, and how far down, from 0 to 1: the same at any width."""
        index = max(0, min(bisect_right(self.offsets, y) - 1, len(self._parts) - 1))
        return index, (y - self.offsets[index]) / max(1, self._parts[index].height)

    def y_of(self, place: tuple[int, float]) -> int:
        index = min(place[0], len(self._parts) - 1)
        return self.offsets[index] + int(place[1] * self._parts[index].height + 0.001)

    def _read(self) -> None:
        if not self._body.is_read:
            self._body.read(self.view.text)
            self.refresh()

    def _take(self) -> None:
        if self._text or self._reasoning or self._tokens:
            text, thought = "".join(self._text), "".join(self._reasoning)
            self._body.feed(text)
            self._thought.feed(thought)
            self.view = replace(
                self.view,
                text=self.view.text + text,
                reasoning=self.view.reasoning + thought,
                tokens=(*self.view.tokens, *self._tokens),
            )
            self._text, self._reasoning, self._tokens = [], [], []

    def _measure(self) -> None:
        self.offsets = [0, *accumulate(part.height for part in self._parts)]

    def _made(self, draw: Callable[[int], list[Line]], text: str = "") -> Part:
        return Part(draw, text, self._width)

    def _block_part(self, block: Block, is_first: bool) -> Part:
        gap = [] if is_first or not block.begins else [BLANK]
        return self._made(lambda width: [*gap, *self._drawer.block(block, width)], block.text)

    def _head(self, width: int) -> list[Line]:
        look = self._drawer.look
        head = head_lines(self.view, look, width)
        return head + fold_lines(self.view, look, width, is_folded=self.is_folded)

    def _thought_lines(self, block: Block) -> Callable[[int], list[Line]]:
        def draw(width: int) -> list[Line]:
            look = self._drawer.look
            bar: Span = (f"{look.marks.quote} ", look.dim)
            return [line.behind(bar) for line in self._drawer.plain(block, width - 2, look.dim)]

        return draw

    def _token_lines(self, width: int) -> list[Line]:
        return token_lines(self.view.tokens, self._drawer.look, width, self.pointed)

    def _foot(self, width: int) -> list[Line]:
        return [*foot_lines(self.view, self._drawer.look, width), END]


class _Body:
    """A turn's text in blocks and their parts, read when somebody looks. What a person wrote means
    its lines; what a model wrote is Markdown."""

    def __init__(self, view: TurnView, look: Look) -> None:
        kind = PlainSource if view.role == "user" else MarkdownSource
        self._source: PlainSource | MarkdownSource = kind(is_ascii=look.marks.is_ascii)
        self._settled: list[Part] = []
        self._tail: list[tuple[Block, Part]] = []
        self._is_stale = False  # text came since the parts were made
        self._was_growing: bool = False
        self.is_read = not view.text

    def feed(self, text: str) -> None:
        if text and self.is_read:
            self._source.feed(text)
            self._is_stale = True

    def read(self, text: str) -> None:
        self.is_read = True
        self.feed(text)

    def parts(self, make: Callable[[Block, bool], Part], *, is_growing: bool) -> list[Part]:
        """Those of settled blocks stay; a last one's stays while its block does."""
        if self._is_stale or is_growing != self._was_growing:
            self._is_stale = False
            self._was_growing = is_growing
            for block in self._source.settled[len(self._settled) :]:
                self._settled.append(make(block, not self._settled))
            before = self._tail
            self._tail = []
            source = self._source
            for i, block in enumerate(source.growing() if is_growing else source.unsettled()):
                same = i < len(before) and (before[i][0] is block or before[i][0] == block)
                part = before[i][1] if same else make(block, not self._settled and i == 0)
                self._tail.append((block, part))
        return [*self._settled, *(part for _, part in self._tail)]

    def forget(self, width: int) -> None:
        for part in [*self._settled, *(part for _, part in self._tail)]:
            part.forget(width)
