"""The first second, and the last: chats are opened and the last one shown; all is kept."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

from edgeserve.errors import ChatNotFoundError, ChatsError
from edgeserve.tui.chat_commands import ChatCommands
from edgeserve.tui.drawing import INTERRUPTED, repair_note
from edgeserve.tui.markdown_blocks import parser
from edgeserve.tui.window import ChatWindow, keep_written
from edgeserve.tui.wording import kept_meanwhile


async def open_chats(screen: ChatWindow, commands: ChatCommands) -> None:
    """Shows the last chat, then loads the model: what is imported for that would keep the first
    keys waiting."""
    try:
        await _open(screen, commands)
    finally:
        if screen.desk.model:
            screen.switch.use(screen.desk.model)


async def _open(screen: ChatWindow, commands: ChatCommands) -> None:
    """Where the file cannot be used, the chats of this session go into another."""
    try:
        await screen.keeper.open()
    except ChatsError as error:
        try:
            path = Path(tempfile.mkdtemp(prefix="edgeserve-chats-")) / "chats.db"
        except OSError:
            screen.say(f"{error}\nUntil then nothing can be kept, so nothing asked.", "trouble")
            return
        from edgeserve.chats.store import ChatStore

        screen.keeper.take(lambda: ChatStore(path))
        screen.say(f"{error}\n{kept_meanwhile(path)}", "trouble")
    interrupted = await screen.keeper.run(lambda store: store.recover())
    await asyncio.to_thread(parser)  # imports what reads Markdown, before an answer waits for it
    await _show_last(screen, commands)
    await commands.fill_list()
    salvage = await screen.keeper.run(lambda store: store.salvage)
    if salvage is not None:
        screen.say(repair_note(salvage), "trouble")
    elif interrupted and any(turn.chat_id == screen.talk.chat.id for turn in interrupted):
        screen.say(INTERRUPTED)


async def _show_last(screen: ChatWindow, commands: ChatCommands) -> None:
    wanted, new = screen.desk.chat_id, screen.desk.new
    if new is not None:
        await screen.talk.change(system_prompt=new.system_prompt, settings=new.settings)
        return
    if not wanted:
        latest = await screen.keeper.run(lambda store: store.latest())
        wanted = "" if latest is None else latest.id
    if wanted:
        if screen.talk.chat.id:  # somebody was faster than the disk, and has asked already
            return
        try:
            await commands.open(wanted, takes_along=True)
        except ChatNotFoundError:
            return


async def close_chats(screen: ChatWindow) -> None:
    """What goes on is stopped and kept, the draft too."""
    with suppress(ChatsError):
        await keep_written(screen)
    await screen.talk.close()
    await screen.switch.cancel()
    with suppress(ChatsError):
        await screen.keeper.close()
