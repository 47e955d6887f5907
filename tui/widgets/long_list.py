"""A list to choose from, of any length: only lines in sight and some around them are made."""

from __future__ import annotations

from collections.abc import Callable

from textual.widgets import OptionList
from textual.widgets.option_list import Option

_LEAST_ROWS, _MARGIN = 24, 8


class LongList(OptionList):
    """`fill` says how many there are, and how one is made. An OptionList of those from `first` on:
    what it tells of is counted from there, `marked` from the beginning of all."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, compact=True, markup=False)
        self.first = 0
        self.marked: int | None = None
        self._num_all = 0
        self._make: Callable[[int], Option] = lambda _: Option("")
        self._is_filling = False

    def fill(self, count: int, make: Callable[[int], Option], marked: int | None) -> None:
        """Shows `count` others instead, the cursor on one of them."""
        self._num_all, self._make, self.marked = count, make, marked
        self._show_around(marked or 0)

    # --- the part that is made ------------------------------------------------------------------

    @property
    def _rows(self) -> int:
        return max(_LEAST_ROWS, self.size.height)

    @property
    def _end(self) -> int:
        return self.first + self.option_count

    def _show_around(self, index: int) -> None:
        around = self._rows + _MARGIN
        end = min(self._num_all, index + around)
        self.first = max(0, min(index - around, end - 2 * around))
        self._is_filling = True
        self.set_options(self._make(each) for each in range(self.first, end))
        if self.marked is not None and self.first <= self.marked < end:
            self.highlighted = self.marked - self.first
        self._is_filling = False

    def _move_around(self, index: int) -> None:
        """Others are made, and `index` stays where it is on the screen."""
        at = self._index_to_line.get(index - self.first, 0) - self.scroll_offset.y
        self._show_around(index)
        y = self._index_to_line.get(index - self.first, at) - at
        self._is_filling = True
        self.scroll_to(y=y, animate=False, force=True, immediate=True)
        self._is_filling = False

    def _have_around(self, count: int) -> None:
        """So many are made before the cursor and behind it, where there are so many."""
        at = self.marked
        if at is None:
            return
        if at + count >= self._end < self._num_all or (at - count < self.first and self.first):
            self._move_around(at)

    def watch_highlighted(self, highlighted: int | None) -> None:
        super().watch_highlighted(highlighted)
        if highlighted is None or self._is_filling:
            return
        self.marked = self.first + highlighted
        self._have_around(_MARGIN // 2)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """By mouse the cursor stays where it was."""
        super().watch_scroll_y(old_value, new_value)
        lines = self._line_cache.lines
        if self._is_filling or not lines or round(new_value) == round(old_value):
            return
        is_down = new_value > old_value
        if is_down and round(new_value) >= self.max_scroll_y > 0 and self._end < self._num_all:
            self._move_around(self.first + lines[-1][0])
        elif not is_down and round(new_value) <= 0 < self.first:
            self._move_around(self.first)

    # --- keys -----------------------------------------------------------------------------------

    def action_cursor_down(self) -> None:
        self._find_mark()
        if self._end == self._num_all and not self._others_after():
            self.action_first()
        else:
            super().action_cursor_down()

    def action_cursor_up(self) -> None:
        self._find_mark()
        at = self.highlighted or 0
        if not self.first and all(each.disabled for each in self.options[:at]):
            self.action_last()
        else:
            super().action_cursor_up()

    def action_page_down(self) -> None:
        self._find_mark()
        self._have_around(self._rows)
        super().action_page_down()

    def action_page_up(self) -> None:
        self._find_mark()
        self._have_around(self._rows)
        super().action_page_up()

    def action_first(self) -> None:
        if self.first:
            self._show_around(0)
        super().action_first()

    def action_last(self) -> None:
        if self._end < self._num_all:
            self._show_around(self._num_all - 1)
        super().action_last()

    def _others_after(self) -> bool:
        at = -1 if self.highlighted is None else self.highlighted
        return any(not each.disabled for each in self.options[at + 1 :])

    def _find_mark(self) -> None:
        """Back to where the cursor was before somebody scrolled."""
        if self.highlighted is None and self.marked is not None:
            self._show_around(self.marked)
