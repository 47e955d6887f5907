"""What was sent from the composer becomes a command or a question; what is not taken comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from edgeserve.errors import EdgeServeError
from edgeserve.tui.attachments import attachments_in, missing_in
from edgeserve.tui.chat_commands import ChatCommands
from edgeserve.tui.commands import is_unknown, no_such_command, parse
from edgeserve.tui.window import STILL_ANSWERING, ChatWindow, draft_of
from edgeserve.tui.wording import at_home


class Sending:
    def __init__(self, screen: ChatWindow, commands: ChatCommands) -> None:
        self._screen = screen
        self._commands = commands
        self._one = asyncio.Lock()
        self._num_sent = 0
        self._warned_of = ""

    def send(self, text: str) -> Coroutine[Any, Any, None]:
        """One after the other, as they were sent: a question is begun, a command done, before the
        next is looked at."""
        self._num_sent += 1
        return self._send(text)

    async def _send(self, text: str) -> None:
        try:
            async with self._one:
                await self._take(text)
        finally:
            self._num_sent -= 1

    async def _take(self, text: str) -> None:
        screen = self._screen
        if (found := parse(text)) is not None:
            command, argument = found
            await self._commands.do(command.name, argument)
        elif is_unknown(text):
            screen.composer.put_back(text)
            screen.say(no_such_command(text))
        elif screen.talk.is_answering:
            screen.composer.put_back(text)
            screen.note(f"{STILL_ANSWERING}, what you wrote stays")
        elif text.strip() or screen.writing.attached:
            await self._ask(text)

    @property
    def is_busy(self) -> bool:
        """Whether what was sent is still being taken."""
        return self._num_sent > 0

    async def stop(self) -> None:
        """The answer under way, or the one to what is being sent."""
        if not self._screen.talk.is_answering:
            async with self._one:
                pass
        await self._screen.talk.stop()

    async def _ask(self, text: str) -> None:
        said = text.removeprefix("/") if text.startswith("//") else text
        if self._is_to_be_warned(text, said):
            return
        screen = self._screen
        editing, attached = screen.editing, list(screen.writing.attached)
        screen.editing, screen.writing.attached = None, []
        screen.notice.dismiss()
        try:
            attached += attachments_in(said, screen.desk.folder)
            screen.transcript.action_scroll_end()
            if editing is None:
                await screen.talk.ask(said.strip(), attached)
            else:
                await screen.talk.edit(editing, said.strip(), attached or None)
        except EdgeServeError:
            screen.composer.put_back(text)
            screen.editing, screen.writing.attached = editing, attached
            raise
        finally:
            screen.writing.show_attached()
        screen.composer.sent_before.add(text)
        if editing is None:
            await screen.talk.keep_draft(draft_of(screen.composer.text))
        elif not screen.composer.text:
            screen.composer.put(screen.talk.draft)

    def _is_to_be_warned(self, text: str, said: str) -> bool:
        """Once, of files that are named and not there: sent again, the text is sent as it is."""
        missing = missing_in(said, self._screen.desk.folder)
        if not missing or text == self._warned_of:
            self._warned_of = ""
            return False
        self._warned_of = text
        self._screen.composer.put_back(text)
        names = ", ".join(f"@{name}" for name in missing)
        self._screen.say(
            f"There is no file {names} in {at_home(self._screen.desk.folder)}: nothing would be "
            "attached. Enter again sends the text as it is."
        )
        return True
