"""Turns one above the other: which line of which turn is at a height, drawn only where seen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from edgeserve.frozen import frozen
from edgeserve.tui.lines import Line
from edgeserve.tui.widgets.turn_parts import TurnParts


@frozen
class Place:
    """A line by what it shows, so that it is found again after anything above it changed."""

    turn: int
    part: tuple[int, float]


class TurnStack:
    """Owns the turns' order and offsets. Heights of turns that were never seen are guesses."""

    def __init__(self) -> None:
        self.turns: list[TurnParts] = []
        self._offsets: list[int] = [0]
        self._undrawn = 0  # every turn before this one is drawn

    @property
    def height(self) -> int:
        return self._offsets[-1]

    def index_of(self, turn_id: str) -> int | None:
        for index in range(len(self.turns) - 1, -1, -1):
            if self.turns[index].view.id == turn_id:
                return index
        return None

    def measure(self, *, first_changed: int = 0) -> None:
        """To be called when turns were changed, added or taken away."""
        self._undrawn = min(self._undrawn, first_changed)
        self._offsets = [0, *accumulate(turn.height for turn in self.turns)]

    def range_of(self, index: int) -> tuple[int, int]:
        """A turn's first line, and the one after its last."""
        return self._offsets[index], self._offsets[index + 1]

    def turn_at(self, y: int) -> int:
        return max(0, min(bisect_right(self._offsets, y) - 1, len(self.turns) - 1))

    def line(self, y: int) -> tuple[TurnParts, Line]:
        index = self.turn_at(y)
        turn = self.turns[index]
        return turn, turn.line(y - self._offsets[index])

    def place_of(self, y: int) -> Place:
        index = self.turn_at(y)
        return Place(index, self.turns[index].place_of(y - self._offsets[index]))

    def y_of(self, place: Place) -> int:
        return self._offsets[place.turn] + self.turns[place.turn].line_at(place.part)

    def ensure(self, first: int, last: int) -> bool:
        """Draws what is seen of lines `first` to `last`; whether a height changed."""
        has_changed = False
        for index in range(self.turn_at(first), self.turn_at(last) + 1):
            start = self._offsets[index]
            has_changed |= self.turns[index].ensure(max(0, first - start), last - start)
        if has_changed:
            self.measure(first_changed=self._undrawn)
        return has_changed

    def draw_more(self) -> Iterator[None]:
        """Draws what nobody has seen yet, a part at a time; ends when all is drawn."""
        while self._undrawn < len(self.turns):
            if not self.turns[self._undrawn].draw_one():
                self._undrawn += 1
                continue
            yield
