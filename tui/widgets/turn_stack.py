"""Turns one above the other: which line of which turn is at a height, drawn only where seen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from edgeserve.frozen import frozen
from edgeserve.tui.lines import Line
from edgeserve.tui.widgets.turn_parts import TurnParts
from edgeserve.tui.widgets.turn_view import TurnView


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
        self._inner: list[list[int]] = []  # the turns' own, as they were last published
        self._unmeasured = 0  # every turn before this one is measured

    @property
    def height(self) -> int:
        return self._offsets[-1]

    def index_of(self, turn_id: str) -> int | None:
        for index in range(len(self.turns) - 1, -1, -1):
            if self.turns[index].view.id == turn_id:
                return index
        return None

    def turn(self, turn_id: str) -> TurnParts | None:
        index = self.index_of(turn_id)
        return None if index is None else self.turns[index]

    def put(
        self, views: Sequence[TurnView], make: Callable[[TurnView], TurnParts], place: Place | None
    ) -> Place | None:
        """Shows these turns and no others. Returns where `place` is now, None if it is gone."""
        known = {turn.view.id: turn for turn in self.turns}
        top = None if place is None else self.turns[place.turn].view.id
        self.turns = [known.pop(view.id, None) or make(view) for view in views]
        for gone in known.values():
            gone.drop()
        for turn, view in zip(self.turns, views, strict=True):
            turn.change(view)
        index = None if top is None else self.index_of(top)
        return None if place is None or index is None else Place(index, place.part)

    def change(self, view: TurnView, make: Callable[[TurnView], TurnParts]) -> int:
        """One turn's other state, or a new one at the end; its index."""
        index = self.index_of(view.id)
        if index is None:
            self.turns.append(make(view))
            return len(self.turns) - 1
        self.turns[index].change(view)
        return index

    def refresh(self, turn_ids: Iterable[str]) -> int:
        """Takes in what came for these turns; the first one's index."""
        found = [self.index_of(turn_id) for turn_id in turn_ids]
        indices = [index for index in found if index is not None]
        for index in indices:
            self.turns[index].refresh()
        return min(indices, default=len(self.turns))

    def measure(self, *, first_changed: int = 0) -> None:
        """To be called when turns were changed, added or taken away. Those before stay where they
        are, though more may be known of their heights by now (`publish`)."""
        self._unmeasured = min(self._unmeasured, first_changed)
        self._place_from(first_changed)

    def publish(self) -> bool:
        """Takes in all that `measure_more` has found; whether anything's place may have changed."""
        before, inner = self._offsets, self._inner
        self._place_from(0)
        self._inner = [turn.offsets for turn in self.turns]
        return self._offsets != before or self._inner != inner

    def _place_from(self, index: int) -> None:
        kept = self._offsets[: index + 1]
        heights = (turn.height for turn in self.turns[index:])
        self._offsets = [*kept[:-1], *accumulate(heights, initial=kept[-1])]

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
        return self._offsets[place.turn] + self.turns[place.turn].y_of(place.part)

    def ensure(self, first: int, last: int) -> bool:
        """Draws what is seen of lines `first` to `last`; whether a height changed."""
        changed: list[int] = []
        for index in range(self.turn_at(first), self.turn_at(last) + 1):
            start = self._offsets[index]
            turn = self.turns[index]
            has_changed = turn.ensure(max(0, first - start), last - start)
            if has_changed or turn.height != self._offsets[index + 1] - start:
                changed.append(index)
        if changed:
            self._place_from(changed[0])
        return bool(changed)

    def measure_more(self) -> Iterator[None]:
        """Turns guesses into heights, a part at a time; ends when there are none."""
        while self._unmeasured < len(self.turns):
            if not self.turns[self._unmeasured].measure_one():
                self._unmeasured += 1
                continue
            yield
