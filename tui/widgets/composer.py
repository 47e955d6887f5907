"""Where a message is written: several lines, history, attachments, the beginnings of commands.

It says in messages what was typed and sent; what that means is the screen's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea

from edgeserve.tui.input_history import InputHistory
from edgeserve.tui.terminal_text import written
from edgeserve.tui.widgets.bound_keys import do_bound, passed_on

_LONG_PASTE_CHARACTERS = 4_000
_LONG_PASTE_LINES = 60


class Composer(TextArea):
    """Enter sends, Ctrl+J and Alt+Enter begin a line. `is_suggesting` while completions are shown:
    then arrows and Tab are theirs, and Enter where `take` says that it took the marked one (it is
    given whether Enter asks, which sends what is typed in full). `is_sending` until the screen has
    heard what was sent, which sets it back."""

    # Not bindings with priority: those are looked at before keys that were typed earlier have
    # arrived here, and a question would be sent without its end.
    ACTIONS: ClassVar[Mapping[str, str]] = {
        "enter": "send",
        "ctrl+j": "newline",
        "alt+enter": "newline",
        "shift+enter": "newline",
        "up": "up",
        "down": "down",
        "tab": "complete",
        "ctrl+x": "chord",
        "ctrl+e": "end_or_editor",
        "ctrl+underscore": "undo",
    }

    class Sent(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Replaced(Message):
        """`put` has put another text there; nobody typed it."""

    class LongPaste(Message):
        """A text that is too long to be looked at while writing."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Moved(Message):
        """Step through the suggestions, by -1 or 1."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    class EditorAsked(Message):
        pass

    class DetachAsked(Message):
        """Backspace where there is nothing: the last attachment goes."""

    def __init__(
        self, placeholder: str, take: Callable[[bool], bool], *, id: str | None = None
    ) -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            compact=True,
            highlight_cursor_line=False,
            placeholder=placeholder,
            id=id,
        )
        self.disable_messages(TextArea.SelectionChanged)  # nobody listens, and all would be asked
        self.sent_before = InputHistory()
        self.is_suggesting = False
        self.is_sending = False
        self._take = take
        self._chord = False
        self._styled: object = None  # the theme whose styles are found

    @property
    def before_cursor(self) -> str:
        """The line up to the cursor."""
        row, column = self.cursor_location
        return self.document[row][:column]

    def put(self, text: str) -> None:
        """Another text, the cursor at its end."""
        with self.prevent(TextArea.Changed):
            self.text = self._written(text)
        self.move_cursor(self.document.end)
        self.post_message(self.Replaced())

    def put_back(self, text: str) -> None:
        """What was sent and not taken, before what was typed since."""
        self.put("\n".join(part for part in (text, self.text) if part))

    def replace_before_cursor(self, length: int, text: str) -> None:
        row, column = self.cursor_location
        self.replace(text, (row, column - length), (row, column))

    # --- how it looks ---------------------------------------------------------------------------

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styled = None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Its styles are found once while they stay, where TextArea finds them for each line that
        is drawn: half of what a key costs."""
        if self._styled is self._theme:
            return super(TextArea, self).render_lines(crop)
        self._styled = self._theme
        return super().render_lines(crop)

    # --- keys -----------------------------------------------------------------------------------

    def action_send(self) -> None:
        """The text is gone at once: a key that is typed already belongs to the next one."""
        if not (self.is_suggesting and self._take(True)):
            text = self.text
            self.put("")
            self.is_sending = True
            self.post_message(self.Sent(text))

    def action_newline(self) -> None:
        self.insert("\n")

    def action_complete(self) -> None:
        if self.is_suggesting:
            self._take(False)
        else:
            self.screen.focus_next()

    def action_up(self) -> None:
        if self.is_suggesting:
            self.post_message(self.Moved(-1))
        elif not self.cursor_at_first_line or not self._shows(self.sent_before.older(self.text)):
            self.action_cursor_up()

    def action_down(self) -> None:
        if self.is_suggesting:
            self.post_message(self.Moved(1))
        elif not self.cursor_at_last_line or not self._shows(self.sent_before.newer()):
            self.action_cursor_down()

    def _written(self, text: str) -> str:
        return written(text, is_ascii=self.app.has_class("-ascii"))  # pyright: ignore[reportUnknownMemberType]

    def _shows(self, text: str | None) -> bool:
        if text is None:
            return False
        self.put(text)
        return True

    def action_chord(self) -> None:
        """Ctrl+X cuts what is selected; without a selection Ctrl+E after it opens the editor."""
        if self.selected_text:
            self.action_cut()
        else:
            self._chord = True

    def action_end_or_editor(self) -> None:
        if self._chord:
            self._chord = False
            self.post_message(self.EditorAsked())
        else:
            self.action_cursor_line_end()

    def action_delete_left(self) -> None:
        if not self.text:
            self.post_message(self.DetachAsked())
        super().action_delete_left()

    async def _on_key(self, event: events.Key) -> None:
        if passed_on(self, event):
            return
        action = self.ACTIONS.get(event.key)
        if action is not None:
            event.stop()
            event.prevent_default()
            await self.run_action(action)
        else:
            await super()._on_key(event)
            if not event.is_printable:
                await do_bound(self, self._bindings, event)
        if event.key != "ctrl+x":
            self._chord = False

    async def _on_paste(self, event: events.Paste) -> None:
        text = event.text
        is_long = len(text) > _LONG_PASTE_CHARACTERS or text.count("\n") > _LONG_PASTE_LINES
        event.prevent_default()
        event.stop()
        if is_long:
            self.post_message(self.LongPaste(text))
        else:
            await super()._on_paste(events.Paste(self._written(text)))
