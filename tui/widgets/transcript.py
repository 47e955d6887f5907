"""The turns of a chat as lines. Draws what is seen; text that streams costs its last block.

Knows no client and no store: it is shown TurnViews and says in messages what somebody wants.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.timer import Timer

from edgeserve.tui.client import TokenFact
from edgeserve.tui.look import STYLE_NAMES
from edgeserve.tui.markdown_inline import LINK, links_in
from edgeserve.tui.markdown_lines import codes_in
from edgeserve.tui.widgets.frame_pace import FramePace
from edgeserve.tui.widgets.transcript_messages import (
    BranchAsked,
    CodeCopyAsked,
    LinkAsked,
    TokenPointed,
    TurnSelected,
)
from edgeserve.tui.widgets.transcript_style import TRANSCRIPT_CSS, TRANSCRIPT_KEYS
from edgeserve.tui.widgets.turn_tokens import TOKEN
from edgeserve.tui.widgets.turn_view import TurnView
from edgeserve.tui.widgets.turn_viewport import TurnViewport

_SOON_SECONDS = 0.02


class Transcript(TurnViewport, can_focus=True):
    """Turns above each other, one of them selected; follows the end while it is in sight."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"transcript--{name}" for name in STYLE_NAMES}

    BINDINGS: ClassVar[list[BindingType]] = TRANSCRIPT_KEYS

    DEFAULT_CSS = TRANSCRIPT_CSS

    def __init__(
        self, *, is_ascii: bool = False, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(is_ascii=is_ascii, id=id, classes=classes)
        self._changed: set[str] = set()
        self._next_code = self._next_link = 0
        self._pace = FramePace()
        self._next_frame = 0.0  # not before
        self._frame_timer: Timer | None = None

    # --- what is shown ---------------------------------------------------------------------------

    def show(self, views: Sequence[TurnView]) -> None:
        """Replaces all. Turns that were there stay as they are; so does the scroll position."""
        place = self._stack.put(views, self._new_turn, self._place)
        self._place = place
        self.follows = self.follows or place is None
        is_gone = self.selected not in {None, *(view.id for view in views)}
        self.selected = None if is_gone else self.selected
        self._relay(0)
        if is_gone and self.has_focus:
            self.on_focus()

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
            rest = max(_SOON_SECONDS, self._next_frame - perf_counter())
            self._frame_timer = self.set_timer(rest, self._frame)

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
        self._frame_timer = None
        self._next_frame = perf_counter() + self._pace.pause()
        self._relay(self._stack.refresh(self._changed))
        self._changed.clear()

    @property
    def _streams(self) -> bool:
        return self._frame_timer is not None or perf_counter() < self._next_frame

    # --- events ----------------------------------------------------------------------------------

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

    def on_focus(self) -> None:
        """A turn is marked, or nobody would see where the keys go."""
        if self.selected is None and self._stack.turns:
            index = self._stack.turn_at(self.scroll_offset.y + self.size.height - 1)
            self._mark(self._stack.turns[index].view.id)

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

    def _point(self, index: int, token: int) -> None:
        turn = self._stack.turns[index]
        if turn.pointed != token:
            turn.pointed = token
            turn.refresh()
            self._relay(index)
            self.post_message(TokenPointed(turn.view.tokens[token]))
