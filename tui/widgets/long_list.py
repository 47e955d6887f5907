"""A list to choose from that makes its lines as somebody comes to them."""

from __future__ import annotations

from collections.abc import Callable

from textual.widgets import OptionList
from textual.widgets.option_list import Option

_CHUNK = 100
_AHEAD = 30
"""So many lines before the last one that is made, more are."""


class LongList(OptionList):
    """`fill` says how many there are, and how one is made."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, compact=True, markup=False)
        self._num_all = 0
        self._make: Callable[[int], Option] = lambda _: Option("")

    def fill(self, count: int, make: Callable[[int], Option], marked: int | None) -> None:
        """Shows `count` others instead, the cursor on one of them."""
        self._num_all, self._make = count, make
        self.set_options(make(index) for index in range(self._end_for(marked or 0)))
        self.highlighted = marked

    def _end_for(self, index: int) -> int:
        """How many are to be made so that the one at `index` is not among the last."""
        return min(self._num_all, ((index + _AHEAD) // _CHUNK + 1) * _CHUNK)

    def _reach(self, index: int) -> None:
        made, wanted = self.option_count, self._end_for(index)
        if made < wanted:
            self.add_options(self._make(each) for each in range(made, wanted))

    def watch_highlighted(self, highlighted: int | None) -> None:
        super().watch_highlighted(highlighted)
        if highlighted is not None:
            self._reach(highlighted)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """By mouse the cursor stays where it was."""
        super().watch_scroll_y(old_value, new_value)
        if round(new_value) >= self.max_scroll_y > 0:
            self._reach(self.option_count)
