"""The chat screen as commands see it."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from textual.screen import ModalScreen

from edgeserve.tui.conversation import Conversation
from edgeserve.tui.desk import Desk
from edgeserve.tui.keeper import ChatKeeper
from edgeserve.tui.model_switch import ModelSwitch
from edgeserve.tui.signs import Signs
from edgeserve.tui.widgets.chat_list import ChatList
from edgeserve.tui.widgets.cockpit import Cockpit
from edgeserve.tui.widgets.composer import Composer
from edgeserve.tui.widgets.notice import Kind, Notice
from edgeserve.tui.widgets.transcript import Transcript
from edgeserve.tui.widgets.writing import Writing

T = TypeVar("T")

STILL_ANSWERING = "still answering: esc stops it"
"""A note that goes by itself when it is not true any more."""


class ChatWindow(Protocol):
    """`editing` is the turn that the next message is put beside."""

    editing: str | None

    @property
    def desk(self) -> Desk: ...
    @property
    def signs(self) -> Signs: ...
    @property
    def keeper(self) -> ChatKeeper: ...
    @property
    def switch(self) -> ModelSwitch: ...
    @property
    def talk(self) -> Conversation: ...

    @property
    def composer(self) -> Composer: ...
    @property
    def writing(self) -> Writing: ...
    @property
    def transcript(self) -> Transcript: ...
    @property
    def notice(self) -> Notice: ...
    @property
    def chats(self) -> ChatList: ...
    @property
    def cockpit(self) -> Cockpit: ...

    @property
    def is_wide(self) -> bool:
        """Whether the list of chats has room beside the chat."""
        ...

    @property
    def shows_list(self) -> bool: ...

    def show_list(self, is_shown: bool) -> None: ...

    def toggle_cockpit(self) -> None: ...

    def say(self, text: str, kind: Kind = "note") -> None:
        """A few lines above the composer."""
        ...

    def note(self, text: str) -> None:
        """A remark in the status line, until something is typed."""
        ...

    def show_branch(self) -> None: ...

    def draw_status(self) -> None: ...

    def do(self, work: Coroutine[Any, Any, None], *, group: str = "") -> None:
        """Runs it; what goes wrong is said. Of a group only the last one goes on."""
        ...

    def after_drawing(self, call: Any, *arguments: object) -> None:
        """Calls it once what was changed is on the screen."""
        ...

    async def ask_user(self, dialog: ModalScreen[T]) -> T | None:
        """What a dialog comes back with; None where it was left."""
        ...

    def given_up(self) -> AbstractContextManager[None]:
        """The terminal is another program's inside. Raises SuspendNotSupported."""
        ...

    @property
    def theme_name(self) -> str: ...

    def use_theme(self, name: str) -> None: ...

    def write_raw(self, text: str) -> None:
        """To the terminal, as it is."""
        ...

    async def leave(self) -> None:
        """Everything is stopped and kept, then the program ends."""
        ...


async def keep_written(screen: ChatWindow) -> None:
    """What stands in the composer is the chat's draft; an edit is only where there is no other."""
    if screen.editing is None or not screen.talk.draft:
        await screen.talk.keep_draft(draft_of(screen.composer.text))


def draft_of(text: str) -> str:
    """What is kept of a composer's text: a command under way is no message to be."""
    return "" if text.startswith("/") and not text.startswith("//") else text
