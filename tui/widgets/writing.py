"""Everything below the chat: suggestions, what is attached, the composer. One message comes out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static, TextArea

from edgeserve.chats.records import Attachment
from edgeserve.tui.completing import Arguments, suggestions_for
from edgeserve.tui.signs import Signs
from edgeserve.tui.terminal_text import shown_line
from edgeserve.tui.widgets.composer import Composer
from edgeserve.tui.widgets.suggestions import Suggestion, Suggestions
from edgeserve.tui.wording import size

_REST_S = 0.8
_PLACEHOLDER = "Ask something. / for commands, @ for a file"


class Writing(Vertical):
    """`attached` goes with the message; Composer.Sent is what comes out in the end."""

    class Typed(Message):
        """Somebody writes."""

    class Rested(Message):
        """Nothing was typed for a moment."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(
        self, signs: Signs, folder: Path, arguments: Arguments, *, id: str | None = None
    ) -> None:
        super().__init__(
            id=id, classes="-writing"
        )  # as it is when the composer has the first focus
        self.attached: list[Attachment] = []
        self._signs = signs
        self._folder = folder
        self._arguments = arguments
        self._rest_timer: Timer | None = None
        self._offered_for = ""

    def compose(self) -> ComposeResult:
        yield Suggestions(id="suggestions")
        yield Static(id="attached", markup=False)
        with Horizontal(id="line"):
            yield Static(self._signs.prompt, id="prompt", markup=False)
            yield Composer(_PLACEHOLDER, self._take, id="composer")

    @property
    def composer(self) -> Composer:
        return self.query_one(Composer)

    def show_attached(self) -> None:
        """The line of what goes with the message."""
        line = self.query_one("#attached", Static)
        parts: list[tuple[str, str]] = []
        for each in self.attached:
            how_much = size(len(each.text.encode("utf-8", "replace")))
            parts += [(f"@{shown_line(each.path)}", "$accent"), (f" {how_much}   ", "$quiet")]
        hint = "" if self.composer.text else "backspace takes it away"
        line.update(Content.assemble(*parts, (hint, "$quiet")))
        line.display = bool(self.attached)

    def offer(self, found: Sequence[Suggestion]) -> None:
        self.query_one(Suggestions).offer(found)
        self.composer.is_suggesting = bool(found)

    def _offer_what_fits(self) -> None:
        row, _ = self.composer.cursor_location
        before = self.composer.before_cursor
        self.offer(suggestions_for(before, row == 0, self._folder, self._arguments))
        self._offered_for = before

    def on_descendant_focus(self) -> None:
        self.add_class("-writing")

    def on_descendant_blur(self) -> None:
        self.remove_class("-writing")

    # --- what the composer says -----------------------------------------------------------------

    @on(TextArea.Changed)
    def _typed(self, event: TextArea.Changed) -> None:
        event.stop()  # each widget above would be a turn of the loop before the key is seen
        self._offer_what_fits()
        if self.attached:
            self.show_attached()
        if self._rest_timer is not None:
            self._rest_timer.stop()
        self._rest_timer = self.set_timer(_REST_S, self._rested)
        self.post_message(self.Typed())

    def _rested(self) -> None:
        self.post_message(self.Rested(self.composer.text))

    @on(Composer.Replaced)
    def _replaced(self) -> None:
        self.offer(())

    @on(Composer.Moved)
    def _moved(self, event: Composer.Moved) -> None:
        self.query_one(Suggestions).move(event.step)

    def _take(self, sends: bool) -> bool:
        """Whether the marked suggestion was taken: Enter sends what is typed in full already. The
        key may be ahead of the suggestions, which were made for less than stands there now."""
        composer = self.composer
        if composer.before_cursor != self._offered_for:
            self._offer_what_fits()
        marked = self.query_one(Suggestions).marked
        typed = composer.before_cursor
        if marked is None or (sends and marked.text.rstrip() == typed[-marked.replaces :].rstrip()):
            return False
        composer.replace_before_cursor(marked.replaces, marked.text)
        return True

    @on(Composer.LongPaste)
    def _pasted(self, event: Composer.LongPaste) -> None:
        number = 1 + sum(each.path.startswith("pasted") for each in self.attached)
        name = "pasted" if number == 1 else f"pasted {number}"
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self.attached.append(Attachment(name, text))
        self.show_attached()

    @on(Composer.DetachAsked)
    def _drop_attachment(self) -> None:
        if self.attached:
            self.attached.pop()
            self.show_attached()
