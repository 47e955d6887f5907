"""The turns of a chat as lines. Draws what is seen; text that streams costs its last block.

Knows no client and no store: it is shown TurnViews and says in messages what somebody wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer

from edgeserve.tui.client import TokenFact
from edgeserve.tui.look import ASCII, STYLE_NAMES, UNICODE, Look
from edgeserve.tui.markdown_inline import LINK, links_in
from edgeserve.tui.markdown_lines import MarkdownLines, codes_in
from edgeserve.tui.widgets.line_strips import MARGIN, LineStrips, surroundings
from edgeserve.tui.widgets.transcript_messages import (
    BranchAsked,
    CodeCopyAsked,
    LinkAsked,
    TokenPointed,
    TurnSelected,
)
from edgeserve.tui.widgets.transcript_style import TRANSCRIPT_CSS, TRANSCRIPT_KEYS, look_of
from edgeserve.tui.widgets.transcript_text import selected_text
from edgeserve.tui.widgets.turn_parts import TurnParts
from edgeserve.tui.widgets.turn_stack import Place, TurnStack
from edgeserve.tui.widgets.turn_tokens import TOKEN
from edgeserve.tui.widgets.turn_view import TurnView

_FRAME_SECONDS = 1 / 20
_BACKGROUND_SECONDS = 0.006
_MAX_TEXT_CELLS = 100
_MAX_SETTLINGS = 8


class Transcript(ScrollView, can_focus=True):
    """Turns above each other, one of them selected; follows the end while it is in sight."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"transcript--{name}" for name in STYLE_NAMES}

    BINDINGS: ClassVar[list[BindingType]] = TRANSCRIPT_KEYS

    DEFAULT_CSS = TRANSCRIPT_CSS

    def __init__(
        self, *, is_ascii: bool = False, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.selected: str | None = None
        self.follows = True
        self.is_tinted = False
        self._marks = ASCII if is_ascii else UNICODE
        self._stack = TurnStack()
        self._drawer = MarkdownLines(Look(marks=self._marks))
        self._width = 0
        self._changed: set[str] = set()
        self._has_new_below = False
        self._place: Place | None = None  # what is at the top
        self._is_settling = False
        self._next_code = self._next_link = 0
        self._rests_until = 0.0
        self._strips = LineStrips(self._drawer.look, Style.null(), Style.null())
        self._frame_timer: Timer | None = None
        self._background_timer: Timer | None = None

    # --- what is shown ---------------------------------------------------------------------------

    def show(self, views: Sequence[TurnView]) -> None:
        """Replaces all. Turns that were there stay as they are; so does the scroll position."""
        place = self._stack.put(views, self._new_turn, self._place)
        self._place = place
        self.follows = self.follows or place is None
        if self.selected not in {view.id for view in views}:
            self.selected = None
        self._relay(0)

    def update(self, view: TurnView) -> None:
        """Shows another state of one turn, or a new one at the end."""
        self._changed.discard(view.id)
        self._relay(self._stack.change(view, self._new_turn))

    def append(
        self,
        turn_id: str,
        text: str,
        *,
        is_reasoning: bool = False,
        tokens: Sequence[TokenFact] = (),
    ) -> None:
        """Adds to a turn. It is seen with the next frame, at most twenty a second."""
        turn = self._stack.turn(turn_id)
        if turn is None:
            return
        turn.append(text, tokens, is_reasoning=is_reasoning)
        self._changed.add(turn_id)
        if self._frame_timer is None:
            rest = self._rests_until - perf_counter()
            self._frame_timer = self.set_timer(max(rest, _FRAME_SECONDS), self._frame)

    @property
    def is_busy(self) -> bool:
        """Whether a frame is due or turns are yet to be drawn."""
        return self._frame_timer is not None or self._background_timer is not None

    def toggle_reasoning(self, turn_id: str) -> None:
        turn = self._stack.turn(turn_id)
        if turn is not None and turn.view.reasoning:
            turn.is_folded = not turn.is_folded
            self._relay(self._stack.refresh({turn_id}))

    def toggle_tint(self) -> None:
        """Answers whose tokens are known, token by token, or as Markdown again."""
        self.is_tinted = not self.is_tinted
        for turn in self._stack.turns:
            turn.shows_tokens = self.is_tinted
            turn.pointed = -1
            turn.refresh()
        self._relay(0)

    def code_blocks(self, turn_id: str) -> list[str]:
        """The code of a turn's blocks, in order."""
        turn = self._stack.turn(turn_id)
        return [] if turn is None else codes_in(turn.view.text)

    def links(self, turn_id: str) -> list[str]:
        """Where a turn's links lead, each place once."""
        turn = self._stack.turn(turn_id)
        return [] if turn is None else links_in(turn.view.text)

    def select(self, turn_id: str) -> None:
        """Moves the selection, and scrolls so that the turn is seen."""
        index = self._stack.index_of(turn_id)
        if index is None:
            return
        self._mark(turn_id)
        self._reveal(index)

    # --- frames ----------------------------------------------------------------------------------

    def _frame(self) -> None:
        started = perf_counter()
        self._frame_timer = None
        self._relay(self._stack.refresh(self._changed))
        self._changed.clear()
        now = perf_counter()
        self._rests_until = now + 2 * (now - started)  # two thirds of the time belong to keys

    def _relay(self, first_changed: int) -> None:
        """Measures anew, and keeps the end or the text at the top where it was."""
        if not self._width:
            return
        before = self._stack.height
        self._stack.measure(first_changed=first_changed)
        if not self.follows and self._stack.height > before:
            self._has_new_below = True
        self._settle()
        self.refresh()
        if self._background_timer is None:
            self._background_timer = self.set_timer(_FRAME_SECONDS, self._measure_unseen)

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
        self._is_settling = True
        self.virtual_size = Size(self._width, stack.height)
        self.scroll_to(y=y, animate=False, force=True)
        self._is_settling = False
        self._place = stack.place_of(y) if stack.turns else None

    def _measure_unseen(self) -> None:
        """Turns guesses into heights, a few milliseconds at a time."""
        self._background_timer = None
        until = perf_counter() + _BACKGROUND_SECONDS
        for _ in self._stack.measure_more():
            if perf_counter() > until:
                self._background_timer = self.set_timer(_FRAME_SECONDS, self._measure_unseen)
                break
        height = self._stack.height
        self._stack.measure(first_changed=len(self._stack.turns))
        if height != self._stack.height:
            self._settle()

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
        super().watch_scroll_y(old_value, new_value)
        if self._is_settling or not self._stack.turns:
            return
        self.follows = round(new_value) >= self.max_scroll_y
        if self.follows:
            self._has_new_below = False
        self._place = self._stack.place_of(round(new_value))
        if self._stack.ensure(round(new_value), round(new_value) + self.size.height):
            self.call_next(self._settle)

    def on_click(self, event: events.Click) -> None:
        meta = event.style.meta
        if LINK in meta:
            self.post_message(LinkAsked(str(meta[LINK])))
            return
        y = self.scroll_offset.y + event.y
        if not self._stack.turns or y >= self._stack.height or self.screen.selections:
            return
        index = self._stack.turn_at(y)
        turn = self._stack.turns[index]
        self._mark(turn.view.id)
        if turn.is_fold(y - self._stack.range_of(index)[0]):
            self.toggle_reasoning(turn.view.id)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        token = event.style.meta.get(TOKEN)
        if token is None or not self._stack.turns:
            return
        index = self._stack.turn_at(self.scroll_offset.y + event.y)
        self._point(index, int(token))

    # --- actions ---------------------------------------------------------------------------------

    def action_select(self, step: int) -> None:
        turns = self._stack.turns
        if not turns:
            return
        index = None if self.selected is None else self._stack.index_of(self.selected)
        if index is None:
            index = self._stack.turn_at(self.scroll_offset.y + self.size.height - 1)
        else:
            index = max(0, min(index + step, len(turns) - 1))
        self.select(turns[index].view.id)

    def action_fold(self) -> None:
        if self.selected is not None:
            self.toggle_reasoning(self.selected)

    def action_branch(self, step: int) -> None:
        if self.selected is not None:
            self.post_message(BranchAsked(self.selected, step))

    def action_copy_code(self) -> None:
        """The selected turn's first code block; the next one when asked again."""
        codes = self.code_blocks(self.selected) if self.selected is not None else []
        if codes:
            self.post_message(CodeCopyAsked(codes[self._next_code % len(codes)]))
            self._next_code += 1

    def action_open_link(self) -> None:
        """The selected turn's first link; the next one when asked again."""
        links = self.links(self.selected) if self.selected is not None else []
        if links:
            self.post_message(LinkAsked(links[self._next_link % len(links)]))
            self._next_link += 1

    def action_tint(self) -> None:
        self.toggle_tint()

    def action_point(self, step: int) -> None:
        index = None if self.selected is None else self._stack.index_of(self.selected)
        if index is not None and self.is_tinted and self._stack.turns[index].view.tokens:
            turn = self._stack.turns[index]
            token = max(0, min(turn.pointed + step, len(turn.view.tokens) - 1))
            self._point(index, token)

    def action_scroll_home(self) -> None:
        self.scroll_to(y=0, animate=False)

    def action_scroll_end(self) -> None:
        self.follows = True
        self._has_new_below = False
        self._settle()
        self.refresh()

    def action_page_up(self) -> None:
        self.scroll_to(y=self.scroll_offset.y - self.size.height + 1, animate=False)

    def action_page_down(self) -> None:
        self.scroll_to(y=self.scroll_offset.y + self.size.height - 1, animate=False)

    def _mark(self, turn_id: str) -> None:
        if self.selected != turn_id:
            self.selected = turn_id
            self._next_code = self._next_link = 0
            self.post_message(TurnSelected(turn_id))
            self.refresh()

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
        self.virtual_size = Size(self._width, self._stack.height)
        self._is_settling = False
        self.scroll_to(y=top, animate=False)

    def _point(self, index: int, token: int) -> None:
        turn = self._stack.turns[index]
        if turn.pointed != token:
            turn.pointed = token
            turn.refresh()
            self._relay(index)
            self.post_message(TokenPointed(turn.view.tokens[token]))

    # --- lines -----------------------------------------------------------------------------------

    def render_lines(self, crop: Region) -> list[Strip]:
        """Past Textual's borders and padding, of which there are none: 17 ms instead of 31 for a
        frame of 48 lines that all moved."""
        if self.styles.gutter or self.opacity < 1:
            return super().render_lines(crop)
        filters = self.get_line_filters()
        background = self.background_colors[1]
        strips: list[Strip] = []
        for y in crop.line_range:
            strip = self.render_line(y)
            for line_filter in filters:
                strip = strip.apply_filter(line_filter, background)
            strips.append(strip.crop_extend(crop.x, crop.right, self._strips.base))
        return strips

    def render_line(self, y: int) -> Strip:
        at = self.scroll_offset.y + y
        width = self._width
        if self._has_new_below and y == self.size.height - 1:
            return self._strips.hint(width)
        if at >= self._stack.height or not self._stack.turns:
            return Strip.blank(width, self._strips.base)
        turn, line = self._stack.line(at)
        selection = self.text_selection
        span = None if selection is None else selection.get_span(at)
        is_marked = turn.view.id == self.selected and self.has_focus
        return self._strips.strip(
            at, line, surroundings(turn.view, width, span, is_marked=is_marked)
        )

    # --- selection by mouse ----------------------------------------------------------------------

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
