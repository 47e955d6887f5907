"""What commands do with chats as wholes: open, name, pin, delete, export."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from edgeserve.chats.records import Chat, Conversation
from edgeserve.errors import ChatImportError
from edgeserve.tui.drawing import INTERRUPTED
from edgeserve.tui.window import ChatWindow, keep_written
from edgeserve.typed_paths import is_file, path_of


class ListCommands:
    def __init__(self, screen: ChatWindow) -> None:
        self._screen = screen
        self._deleted: list[Chat] = []

    def table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "new": self._new,
            "chats": self._chats,
            "rename": self._rename,
            "tag": self._tag,
            "pin": self._pin,
            "delete": self._delete,
            "undo": self._undo,
            "export": self._export,
            "import": self._import,
        }

    # --- the list -------------------------------------------------------------------------------

    async def fill(self) -> None:
        """The list as it is now: all chats, or what the search finds."""
        screen = self._screen
        words, current = screen.chats.words, screen.talk.chat.id
        if words:
            hits = await screen.keeper.run(lambda store: store.search(words))
            if screen.chats.words == words:
                screen.chats.show_hits(hits, current)
        else:
            screen.chats.show_chats(await screen.keeper.run(lambda store: store.chats()), current)

    async def _chats(self, argument: str) -> None:
        """Shows the list, its search focused; hides it when it is there already."""
        screen = self._screen
        if screen.shows_list and not argument and screen.chats.has_focus_within:
            screen.show_list(False)
            screen.composer.focus()
            return
        screen.show_list(True)
        screen.after_drawing(screen.chats.search, argument)
        await self.fill()

    async def look_for_others(self) -> None:
        """Another window may have written."""
        screen = self._screen
        talk = screen.talk
        if await screen.keeper.run(lambda store: store.changed()):
            await self.fill()
            if not talk.is_answering:
                chat, tree = talk.chat, talk.tree.turns
                await talk.refresh()
                if (talk.chat, talk.tree.turns) != (chat, tree):
                    screen.show_branch()
                if talk.chat.deleted_at is not None and chat.deleted_at is None:
                    screen.say(_DELETED_ELSEWHERE)
        if await talk.recover():
            screen.show_branch()
            screen.say(INTERRUPTED)

    async def look_again(self, why: str, had: Conversation) -> None:
        """What was read before may not be there any more: what this window `had` of its chat is put
        back. `why` is said after all that came of it."""
        screen = self._screen
        if had.chat.id and await screen.keeper.run(lambda store: store.put_back(had)):
            why += " What this window had of the chat it shows is kept."
        if not screen.talk.chat.id and had.turns:
            await screen.talk.open(had.chat.id)
        await self.fill()
        await screen.talk.refresh()
        screen.show_branch()
        screen.say(why, "trouble")

    # --- one chat -------------------------------------------------------------------------------

    async def open(
        self, chat_id: str, turn_id: str | None = None, *, takes_along: bool = False
    ) -> None:
        """Shows a chat, its draft in the composer. What stands there is the draft of the chat
        before, or comes along."""
        screen = self._screen
        if not takes_along:
            await self._keep_draft()
        screen.editing = None
        screen.notice.dismiss()
        await screen.talk.open(chat_id, turn_id)
        written = screen.composer.text if takes_along else ""
        screen.composer.put(screen.talk.chat.draft + written)
        screen.composer.sent_before.fill(
            turn.text for turn in screen.talk.turns if turn.role == "user"
        )
        screen.note("")
        if turn_id is not None:
            screen.transcript.focus()
            screen.after_drawing(screen.transcript.select, turn_id)
        else:
            screen.composer.focus()
        await self.fill()

    async def _keep_draft(self) -> None:
        """Before another chat is shown."""
        await keep_written(self._screen)

    async def _new(self, _: str) -> None:
        screen = self._screen
        await self._keep_draft()
        screen.editing = None
        screen.talk.start_new()
        screen.composer.put("")
        screen.notice.dismiss()
        screen.note("")
        screen.composer.focus()
        await self.fill()

    async def do_with_chat(self, command: str, chat_id: str) -> None:
        """From the list: with the chat under the cursor."""
        chat = await self._screen.keeper.run(lambda store: store.chat(chat_id))
        match command:
            case "pin":
                await self._do_pin(chat)
            case "rename":
                await self._do_rename(chat, "")
            case "tag":
                await self._do_tag(chat, "")
            case "delete":
                await self._do_delete(chat)
            case _:
                await self._undo("")

    def _shown(self) -> Chat | None:
        chat = self._screen.talk.chat
        if not chat.id:
            self._screen.note("this chat has not begun yet")
            return None
        return chat

    async def _rename(self, argument: str) -> None:
        if (chat := self._shown()) is not None:
            await self._do_rename(chat, argument)

    async def _tag(self, argument: str) -> None:
        if (chat := self._shown()) is not None:
            await self._do_tag(chat, argument)

    async def _pin(self, _: str) -> None:
        if (chat := self._shown()) is not None:
            await self._do_pin(chat)

    async def _delete(self, _: str) -> None:
        if (chat := self._shown()) is not None:
            await self._do_delete(chat)

    async def _do_rename(self, chat: Chat, title: str) -> None:
        if not title:
            from edgeserve.tui.screens.dialogs import LineDialog

            dialog = LineDialog("Title", "Empty: made from the first message again", chat.title)
            entered = await self._screen.ask_user(dialog)
            if entered is None:
                return
            title = entered
        await self._screen.keeper.run(lambda store: store.rename(chat.id, title))
        await self._changed()

    async def _do_tag(self, chat: Chat, tag: str) -> None:
        if not tag:
            from edgeserve.tui.screens.dialogs import LineDialog

            there = ", ".join(chat.tags)
            dialog = LineDialog("Tag", f"It has: {there}. One of these is taken off." * bool(there))
            tag = (await self._screen.ask_user(dialog) or "").strip()
        tag = tag.removeprefix("#").strip()
        if not tag:
            return
        if tag in chat.tags:
            await self._screen.keeper.run(lambda store: store.untag(chat.id, tag))
        else:
            await self._screen.keeper.run(lambda store: store.tag(chat.id, tag))
        await self._changed()

    async def _do_pin(self, chat: Chat) -> None:
        await self._screen.keeper.run(lambda store: store.change(chat.id, pinned=not chat.pinned))
        await self._changed()

    async def _do_delete(self, chat: Chat) -> None:
        """At once, and with a way back."""
        screen = self._screen
        await screen.keeper.run(lambda store: store.delete(chat.id))
        self._deleted.append(chat)
        if chat.id == screen.talk.chat.id:
            await screen.talk.stop()
            await self._new("")
        await self.fill()
        screen.say(f"Deleted, and /undo brings it back: {chat.title or 'untitled'}")

    async def _undo(self, _: str) -> None:
        if not self._deleted:
            self._screen.note("nothing was deleted since the start")
            return
        chat = self._deleted.pop()
        await self._screen.keeper.run(lambda store: store.undelete(chat.id))
        await self.open(chat.id)

    async def _changed(self) -> None:
        await self._screen.talk.refresh()
        await self.fill()
        self._screen.draw_status()

    # --- files ----------------------------------------------------------------------------------

    async def _export(self, argument: str) -> None:
        """The branch that is shown as Markdown, or all of them as JSON. A file that is something
        else than this chat is written over only with --force."""
        screen, chat = self._screen, self._shown()
        if chat is None:
            return
        named = argument.removeprefix("--force").strip()
        name = named or f"{_file_name(chat.title)}.md"
        path = screen.desk.folder / path_of(name)
        if path.suffix.lower() not in (".md", ".markdown", ".txt", ".json"):
            screen.say(f"{name} was not written: .md and .txt are Markdown, .json has all branches")
            return
        may_replace = argument.startswith("--force") or await asyncio.to_thread(
            _is_free_for, chat, path
        )
        if not may_replace:
            screen.say(
                f"{path} is there already, and is not this chat: /export --force {name} writes "
                "over it"
            )
            return
        found = await screen.keeper.run(lambda store: store.conversation(chat.id))
        if path.suffix.lower() == ".json":
            from edgeserve.chats.json_format import to_json

            data = to_json([found])
        else:
            from edgeserve.chats.markdown_format import to_markdown

            data = to_markdown(found.chat, screen.talk.turns).encode()
        try:
            await asyncio.to_thread(_written, path, data)
        except OSError as error:
            screen.say(f"{path} was not written: {error.strerror or error}", "trouble")
        else:
            screen.say(f"Written to {path}")

    async def _import(self, argument: str) -> None:
        screen = self._screen
        if not argument:
            from edgeserve.tui.screens.dialogs import LineDialog

            argument = await screen.ask_user(LineDialog("Import a file", _FORMS)) or ""
        if not argument:
            return
        path = screen.desk.folder / path_of(argument)
        from edgeserve.chats.exchange import read_file
        from edgeserve.chats.store import random_id

        found = await asyncio.to_thread(read_file, path, random_id)
        added = await screen.keeper.run(lambda store: store.add(found))
        if added:
            await self.open(added[-1].id)
        screen.say(f"{len(added)} chat{'s' * (len(added) != 1)} imported from {path}")


_DELETED_ELSEWHERE = (
    "Another window deleted this chat. What you ask here brings it back; ctrl+n begins another."
)

_FORMS = "Markdown or JSON as /export writes them, ChatGPT's conversations.json, a chats.db"


def _is_free_for(chat: Chat, path: Path) -> bool:
    """Whether nothing is there, or what was written there of this chat before."""
    if not is_file(path):
        return True
    from edgeserve.chats.exchange import read_file
    from edgeserve.chats.store import random_id

    try:
        found = read_file(path, random_id)
    except ChatImportError:
        return False
    return [each.chat.created_at for each in found] == [chat.created_at]


def _written(path: Path, data: bytes) -> None:
    """Wholly, or what stood there stays. Raises OSError."""
    if path.is_fifo():
        raise OSError("it is a pipe")  # which takes nothing until somebody reads it
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_bytes(data)  # a device or a link is written to, not replaced
        return
    from edgeserve.chats.store import random_id

    beside = path.with_name(f".{path.name}.{random_id()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _file_name(title: str) -> str:
    kept = "".join(each if each.isalnum() else "-" for each in title.lower())
    return "-".join(part for part in kept.split("-") if part)[:60] or "chat"
