"""The chats, and what a search found among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from edgeserve.chats.records import Chat, Hit
from edgeserve.chats.titles import made_title
from edgeserve.tui.signs import Signs
from edgeserve.tui.terminal_text import cut, shown_line
from edgeserve.tui.widgets.bound_keys import Field
from edgeserve.tui.widgets.long_list import LongList
from edgeserve.tui.wording import ago

_UNTITLED = "untitled"
_BESIDE_CELLS = 3
"""A blank at each side, and the column that is kept free for the scrollbar."""
_DRAFT = "draft:"


class ChatList(Vertical):
    """Arrows move through it while one types in the search, Enter opens."""

    class Opened(Message):
        """A chat is wanted, at a turn where a search found it there."""

        def __init__(self, chat_id: str, turn_id: str | None) -> None:
            super().__init__()
            self.chat_id = chat_id
            self.turn_id = turn_id

    class Searched(Message):
        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    class Asked(Message):
        """Something is to be done with a chat: a command's name."""

        def __init__(self, command: str, chat_id: str) -> None:
            super().__init__()
            self.command = command
            self.chat_id = chat_id

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", show=False),
        Binding("up", "move(-1)", show=False),
    ]

    def __init__(self, signs: Signs, clock: Callable[[], float], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._signs = signs
        self._clock = clock
        self._found: Sequence[tuple[Chat, str | None]] = ()
        self._draw: Callable[[], None] = lambda: None

    def compose(self) -> ComposeResult:
        yield Field(placeholder="Search all chats", id="search", compact=True)
        yield _Chats(id="found")

    @property
    def words(self) -> str:
        return self.query_one("#search", Input).value.strip()

    @property
    def marked(self) -> str | None:
        """The id of the chat under the cursor."""
        at = self.query_one(LongList).marked
        return None if at is None or at >= len(self._found) else self._found[at][0].id

    def search(self, words: str) -> None:
        field = self.query_one("#search", Input)
        field.value = words
        field.focus()

    def show_chats(self, chats: Sequence[Chat], current: str) -> None:
        self._draw = partial(self._draw_chats, chats, current)
        self._draw()

    def show_hits(self, hits: Sequence[Hit], current: str) -> None:
        self._draw = partial(self._draw_hits, hits, current)
        self._draw()

    # --- drawing --------------------------------------------------------------------------------

    @on(events.Resize)
    @on(events.Show)
    def _draw_anew(self) -> None:
        """Lines are made for a width, which a list that was hidden has only now; shown as wide as
        it was before, it is not resized."""
        self.call_after_refresh(self._draw)

    def _draw_chats(self, chats: Sequence[Chat], current: str) -> None:
        found = [(chat, None) for chat in chats]
        self._fill(found, lambda index: self._line(chats[index], current), current)

    def _draw_hits(self, hits: Sequence[Hit], current: str) -> None:
        found = [(hit.chat, hit.turn_id) for hit in hits]
        self._fill(found, lambda index: self._hit(hits[index], current), "")

    def _fill(
        self,
        found: Sequence[tuple[Chat, str | None]],
        line: Callable[[int], Content],
        current: str,
    ) -> None:
        options = self.query_one(LongList)
        marked = self.marked
        self._found = found
        ids = [chat.id for chat, _ in found]
        if not self.has_focus_within or marked not in ids:
            marked = current
        at = ids.index(marked) if marked in ids else (0 if ids else None)
        options.fill(len(found), lambda index: Option(line(index)), at)
        if not found:
            nothing = "Nothing found" if self.words else "No chats yet"
            options.add_option(Option(Content.styled(nothing, "$quiet"), disabled=True))

    def _line(self, chat: Chat, current: str) -> Content:
        """The title, and when it was last written to, at the right."""
        when = ago(chat.updated_at, self._clock())
        tags = "".join(f" #{shown_line(tag)}" for tag in chat.tags)
        pin = f"{self._signs.pin} " if chat.pinned else ""
        width = max(8, self.query_one(OptionList).size.width - _BESIDE_CELLS)
        room = max(4, width - cell_len(when) - 1 - cell_len(pin))
        title = shown_line(chat.title or _title_of_draft(chat.draft))
        text = cut(title + tags, room, self._signs.ellipsis)
        shown_tags = text[len(title) :] if len(text) > len(title) else ""
        text = text[: len(text) - len(shown_tags)]
        blank = " " * max(1, width - cell_len(pin + text + shown_tags) - cell_len(when))
        style = "bold $accent" if chat.id == current else ""
        return Content.assemble(
            (pin, "$accent"), (text, style), (shown_tags, "$primary"), (blank + when, "$quiet")
        )

    def _hit(self, hit: Hit, current: str) -> Content:
        title = shown_line(hit.chat.title or _UNTITLED)
        style = "bold $accent" if hit.chat.id == current else ""
        if hit.turn_id is None:
            return Content.styled(title, style)
        parts: list[tuple[str, str]] = [(title, style), ("\n", "")]
        at = 0
        for start, end in hit.marks:
            parts.append((shown_line(hit.snippet[at:start]), "$quiet"))
            parts.append((shown_line(hit.snippet[start:end]), "bold $accent"))
            at = end
        return Content.assemble(*parts, (shown_line(hit.snippet[at:]), "$quiet"))

    # --- events ---------------------------------------------------------------------------------

    @on(Input.Changed, "#search")
    def _typed(self) -> None:
        self.post_message(self.Searched(self.words))

    @on(Input.Submitted, "#search")
    def _submitted(self) -> None:
        self._open(self.query_one(LongList).marked)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._open(self.query_one(LongList).marked)

    def _open(self, at: int | None) -> None:
        if at is not None and at < len(self._found):
            chat, turn_id = self._found[at]
            self.post_message(self.Opened(chat.id, turn_id))

    def action_move(self, step: int) -> None:
        options = self.query_one(OptionList)
        if step > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def ask(self, command: str) -> None:
        if self.marked is not None:
            self.post_message(self.Asked(command, self.marked))


class _Chats(LongList):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "ask('pin')", show=False),
        Binding("r", "ask('rename')", show=False),
        Binding("t", "ask('tag')", show=False),
        Binding("d,delete", "ask('delete')", show=False),
        Binding("u", "ask('undo')", show=False),
    ]

    def action_ask(self, command: str) -> None:
        found = self.parent
        if isinstance(found, ChatList):
            found.ask(command)


def _title_of_draft(draft: str) -> str:
    words = made_title(draft)
    return f"{_DRAFT} {words}" if words else _UNTITLED
