"""What is in sight of a stack of turns: which lines, where, and how they look on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from time import perf_counter

from rich.style import Style
from textual import events
from textual.color import TRANSPARENT, Color
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from edgeserve.tui.look import ASCII, UNICODE, Look
from edgeserve.tui.markdown_lines import MarkdownLines
from edgeserve.tui.widgets.line_strips import MARGIN, LineStrips, surroundings
from edgeserve.tui.widgets.transcript_style import look_of
from edgeserve.tui.widgets.transcript_text import selected_text
from edgeserve.tui.widgets.turn_parts import TurnParts
from edgeserve.tui.widgets.turn_stack import Place, TurnStack
from edgeserve.tui.widgets.turn_view import TurnView

_PAUSE_SECONDS = 1 / 20
_BACKGROUND_SECONDS = 0.004
_AFTER_STREAM_SECONDS = 0.25
_PUBLISH_SECONDS = 1.0
_MAX_TEXT_CELLS = 100
_MAX_SETTLINGS = 8
_EIGHTHS = 8
_MAX_FINISHED = 1024


class TurnViewport(ScrollView):
    """Draws what is seen of `_stack`. Keeps the end in sight while it follows it, else the line at
    the top where it is, whatever changes above."""

    # Only the bar depends on it, where Textual would lay out the whole screen anew and paint it:
    # three times the cost of a frame.
    virtual_size: Reactive[Size] = Reactive(Size(0, 0), repaint=False)

    def __init__(
        self, *, is_ascii: bool = False, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.selected: str | None = None
        self.follows = True
        self.is_tinted = False
        self._stack = TurnStack()
        self._marks = ASCII if is_ascii else UNICODE
        self._drawer = MarkdownLines(Look(marks=self._marks))
        self._strips = LineStrips(self._drawer.look, Style.null(), Style.null())
        self._width = 0
        self._has_new_below = False
        self._place: Place | None = None  # what is at the top
        self._is_settling = False
        self._background_timer: Timer | None = None
        self._published_at = 0.0
        self._thumb: tuple[int, int] | None = None  # as the bar has it
        self._drawn: list[Strip] = []  # as the screen has them
        self._known: tuple[object, list[Strip]] | None = None  # what they should be, and why
        self._finished: dict[int, tuple[Strip, Strip]] = {}
        self._finished_for: tuple[Sequence[LineFilter], Color, int, int] = ((), TRANSPARENT, 0, 0)

    def _relay(self, first_changed: int) -> None:
        """Measures anew, and keeps the end or the text at the top where it was."""
        if not self._width:
            return
        before = self._stack.height
        self._stack.measure(first_changed=first_changed)
        if not self.follows and self._stack.height > before:
            self._has_new_below = True
        self._settle()
        self._refresh_changed()
        if self._background_timer is None:
            self._background_timer = self.set_timer(_PAUSE_SECONDS, self._measure_unseen)

    def _settle(self) -> None:
        """Draws what is in sight, which may change its height, until nothing moves."""
        stack = self._stack
        height = self.size.height
        y = 0
        for _ in range(_MAX_SETTLINGS):
            last = max(0, stack.height - height)
            y = last if self.follows or self._place is None else stack.y_of(self._place)
            y = min(y, last)
            if not stack.turns or not stack.ensure(y, y + height):
                break
        self._known = None
        self._is_settling = True
        self._bound(y)
        self.scroll_to(y=y, animate=False, force=True)
        self._is_settling = False
        self._place = stack.place_of(y) if stack.turns else None

    def _bound(self, y: int) -> None:
        """How far it scrolls, with line `y` at the top."""
        self.virtual_size = Size(self._width, self._stack.height)
        self._move_bar(y)

    def _move_bar(self, y: float) -> None:
        """Where it would look otherwise than now: drawing it costs as much as the text."""
        thumb = thumb_of(self.size.height, self._stack.height, y)
        if thumb != self._thumb:
            self._thumb = thumb
            self._scroll_update(self.virtual_size)  # pyright: ignore[reportPrivateUsage]
            if self.show_vertical_scrollbar:
                self.vertical_scrollbar.position = y

    def _measure_unseen(self) -> None:
        """Turns guesses into heights, a few milliseconds at a time. What is in sight moves by that,
        and with it the place of every line on it: seldom."""
        self._background_timer = None
        now = perf_counter()
        if self._streams:
            self._background_timer = self.set_timer(_AFTER_STREAM_SECONDS, self._measure_unseen)
            return
        for _ in self._stack.measure_more():
            if perf_counter() > now + _BACKGROUND_SECONDS:
                self._background_timer = self.set_timer(_PAUSE_SECONDS, self._measure_unseen)
                break
        if self._background_timer is None or now > self._published_at + _PUBLISH_SECONDS:
            self._published_at = now
            if self._stack.publish():
                self._settle()
                self._refresh_changed()

    # --- how it is drawn -------------------------------------------------------------------------

    @property
    def _streams(self) -> bool:
        """Whether frames follow each other: then there is no time for what nobody sees."""
        return False

    def _new_turn(self, view: TurnView) -> TurnParts:
        turn = TurnParts(view, self._drawer, self._text_width)
        turn.shows_tokens = self.is_tinted
        return turn

    @property
    def _text_width(self) -> int:
        return max(1, min(self._width - MARGIN, _MAX_TEXT_CELLS))

    def _redraw(self) -> None:
        """Another width or theme: all lines are made anew, those in sight at once."""
        self._drawer = MarkdownLines(look_of(self, self._marks))
        selection = self.screen.get_component_rich_style("screen--selection")
        self._strips = LineStrips(self._drawer.look, self.rich_style, selection)
        for turn in self._stack.turns:
            turn.redraw(self._drawer, self._text_width)
        self._relay(0)

    # --- events ----------------------------------------------------------------------------------

    def on_resize(self, _: events.Resize) -> None:
        # The bar's column is kept free while there is no bar.
        width = max(0, self.outer_size.width - self.scrollbar_size_vertical)
        if width != self._width:
            self._width = width
            self.screen.clear_selection()
            self._redraw()
        else:
            self._relay(len(self._stack.turns))

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self._width:
            self.call_next(self._redraw)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        self._move_bar(new_value)
        if round(old_value) != round(new_value):
            self.refresh(Region(0, 0, self._width, self.size.height))
        if self._is_settling or not self._stack.turns:
            return
        self.follows = round(new_value) >= self.max_scroll_y
        if self.follows:
            self._has_new_below = False
        self._place = self._stack.place_of(round(new_value))
        if self._stack.ensure(round(new_value), round(new_value) + self.size.height):
            self.call_next(self._settle)

    def _reveal(self, index: int) -> None:
        """Scrolls as little as shows the turn, or its beginning."""
        self._stack.ensure(*self._stack.range_of(index))
        first, after = self._stack.range_of(index)
        top, height = self.scroll_offset.y, self.size.height
        if first < top or after - first > height:
            top = first
        elif after > top + height:
            top = after - height
        self._stack.ensure(top, top + height)
        self._is_settling = True
        self._bound(top)
        self._is_settling = False
        self.scroll_to(y=top, animate=False)

    # --- lines -----------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        """Past Textual's borders and padding, of which there are none: 17 ms instead of 31 for a
        frame of 48 lines that all moved."""
        if self.styles.gutter or self.opacity < 1:
            return super().render_lines(crop)
        looks = (self.get_line_filters(), self.background_colors[1], crop.x, crop.right)
        if looks != self._finished_for:
            self._finished_for = looks
            self._finished.clear()
        if len(self._finished) > _MAX_FINISHED:
            self._finished.clear()
        self._drawn = self._window()
        rows = crop.line_range
        return [self._finish(strip) for strip in self._drawn[rows.start : rows.stop]]

    def _finish(self, strip: Strip) -> Strip:
        """As it goes to the screen; the same again for the same."""
        known = self._finished.get(id(strip))
        if known is not None:
            return known[1]
        filters, background, left, right = self._finished_for
        finished = strip
        for line_filter in filters:
            finished = finished.apply_filter(line_filter, background)
        finished = finished.crop_extend(left, right, self._strips.base)
        self._finished[id(strip)] = (strip, finished)
        return finished

    def _refresh_changed(self) -> None:
        """Paints the lines that look otherwise than the screen has them."""
        self._known = None
        strips = self._window()
        if len(strips) != len(self._drawn):
            self.refresh()
            return
        changed = [y for y, strip in enumerate(strips) if strip is not self._drawn[y]]
        if changed:
            height = changed[-1] + 1 - changed[0]
            self.refresh(Region(0, changed[0], self._width, height))  # and the bar stays

    def render_line(self, y: int) -> Strip:
        return self._window()[y]

    def _window(self) -> list[Strip]:
        """What stands on each row; the same list again while nothing is another."""
        marked = self.selected if self.has_focus else None
        selection, top = self.text_selection, self.scroll_offset.y
        now = (top, self.size, self._has_new_below, marked, selection, self._strips)
        if self._known is None or self._known[0] != now:
            rows = range(self.size.height - self._has_new_below)
            strips = [self._row(top + y, marked, selection) for y in rows]
            if self._has_new_below:
                strips.append(self._strips.hint(self._width))
            self._known = now, strips
        return self._known[1]

    def _row(self, at: int, marked: str | None, selection: Selection | None) -> Strip:
        """Line `at` of all; blank below the last."""
        if at >= self._stack.height or not self._stack.turns:
            return Strip.blank(self._width, self._strips.base)
        turn, line = self._stack.line(at)
        span = None if selection is None else selection.get_span(at)
        around = surroundings(turn.view, self._width, span, is_marked=turn.view.id == marked)
        return self._strips.strip(at, line, around)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text as it is seen, without bars and margins, wrapped lines joined again."""
        first = 0 if selection.start is None else selection.start.y
        last = self._stack.height - 1 if selection.end is None else selection.end.y
        while self._stack.turns and self._stack.ensure(first, last):
            pass
        lines = [
            (y, self._stack.line(y)[1]) for y in range(first, min(last, self._stack.height - 1) + 1)
        ]
        return selected_text(lines, selection, MARGIN), "\n"


def thumb_of(window: int, total: int, y: float) -> tuple[int, int] | None:
    """Where a bar's thumb begins and how long it is, in eighths of a line, which is as finely as it
    is drawn. None where all is in sight."""
    if not 0 < window < total:
        return None
    length = max(1.0, window * window / total)
    start = int(_EIGHTHS * (window - length) * y / (total - window))
    return start, ceil(_EIGHTHS * length)
