"""Conversations, kept: what a window, or a command, does with them.

Every method returns once what it wrote is on disk, and raises ChatsFileError where it cannot be.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from edgeserve.chats import rows, tables
from edgeserve.chats.database import ChatDatabase
from edgeserve.chats.hits import found_hits
from edgeserve.chats.new_ids import with_new_ids
from edgeserve.chats.putting_back import put_back
from edgeserve.chats.records import (
    Attachment,
    Chat,
    Conversation,
    Generation,
    Hit,
    Role,
    Turn,
    TurnState,
)
from edgeserve.chats.salvage import Salvage
from edgeserve.chats.search import forget_missing
from edgeserve.chats.tree import TurnTree
from edgeserve.chats.writers import Writer
from edgeserve.errors import AnswerUnderWayError, ChatNotFoundError, ChatsError

_LAST_MODEL = "last model"


def random_id() -> str:
    return secrets.token_hex(8)


class ChatStore:
    """The chats in one file, which other windows may have open as well.

    `salvage` says what came of a damaged file, where one was found. May be called from any thread,
    one call at a time goes on. Raises ChatsFileError where the file cannot be used.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = random_id,
        busy_timeout_s: float = 5.0,
    ) -> None:
        self._clock = clock
        self._new_id = new_id
        self._database = ChatDatabase(path, busy_timeout_s)
        self._writer = Writer(path.parent / "writers", new_id())

    @property
    def salvage(self) -> Salvage | None:
        return self._database.salvage

    def close(self) -> None:
        """Answers that this store still writes are interrupted. Twice is fine."""
        with suppress(ChatsError), self._database.writing() as connection:
            tables.interrupt(connection, [self._writer.name])
        self._writer.let_go()
        self._database.close()

    def repair(self) -> Salvage | None:
        """After a ChatsDamagedError, as the next start would. Returns what came of it."""
        self._database.reopen()
        return self.salvage

    def __enter__(self) -> ChatStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- chats ----------------------------------------------------------------------------------

    def chats(self, *, title: str = "", tag: str = "") -> list[Chat]:
        """Those whose titles have `title` in them, and that have the tag: the pinned first, then
        the last used."""
        wanted = title.casefold()
        with self._database.reading() as connection:
            found = tables.read_chats(
                connection,
                "WHERE deleted_at IS NULL ORDER BY pinned DESC, updated_at DESC, seq DESC",
            )
        return [
            chat
            for chat in found
            if wanted in chat.title.casefold() and (not tag or tag in chat.tags)
        ]

    def chat(self, chat_id: str) -> Chat:
        """Also one that is deleted and not yet purged. Raises ChatNotFoundError."""
        with self._database.reading() as connection:
            return tables.read_chat(connection, chat_id)

    def latest(self) -> Chat | None:
        """The last used, be there no more in it than a draft."""
        with self._database.reading() as connection:
            return tables.latest_chat(connection)

    def latest_spoken(self) -> Chat | None:
        """The last used in which anything was said."""
        with self._database.reading() as connection:
            return tables.latest_chat(connection, f"AND {tables.HAS_TURNS}")

    def new_chat(
        self,
        *,
        model: str = "",
        system_prompt: str = "",
        settings: Mapping[str, object] | None = None,
    ) -> Chat:
        now = self._clock()
        chat = Chat(
            id=self._new_id(),
            created_at=now,
            model=model,
            system_prompt=system_prompt,
            settings=dict(settings or {}),
        )
        with self._database.writing() as connection:
            used_at = tables.time_of_use(connection, now)
            tables.insert_chat(connection, replace(chat, updated_at=used_at))
            return tables.read_chat(connection, chat.id)

    def change(
        self,
        chat_id: str,
        *,
        title: str | None = None,
        pinned: bool | None = None,
        model: str | None = None,
        system_prompt: str | None = None,
        settings: Mapping[str, object] | None = None,
        draft: str | None = None,
    ) -> Chat:
        """Changes what is given, and leaves what another window changed.

        `title` is one that was made: it does not replace one given by hand (`rename`). Of
        `settings` too only those that are given change, and None takes one away.
        """
        given = {"model": model, "system_prompt": system_prompt, "draft": draft}
        changes: dict[str, object] = {
            name: rows.clean(value) for name, value in given.items() if value is not None
        }
        if pinned is not None:
            changes["pinned"] = int(pinned)
        with self._database.writing() as connection:
            chat = tables.read_chat(connection, chat_id)
            if settings is not None:
                merged = {**chat.settings, **settings}
                kept = {name: value for name, value in merged.items() if value is not None}
                changes["settings"] = rows.settings_json(kept)
            tables.update_chat(connection, chat_id, changes)
            if title is not None and not chat.titled_by_hand:
                tables.set_title(connection, chat_id, title, by_hand=False)
            return tables.read_chat(connection, chat_id)

    def keep_draft(self, chat_id: str, text: str) -> Chat | None:
        """What stands in the composer of a chat. One that has nothing but its draft is gone once
        that is empty, and None is returned."""
        with self._database.writing() as connection:
            chat = tables.read_chat(connection, chat_id)
            if not text and tables.delete_if_bare(connection, chat):
                return None
            tables.update_chat(connection, chat_id, {"draft": rows.clean(text)})
            return tables.read_chat(connection, chat_id)

    def rename(self, chat_id: str, title: str) -> Chat:
        """By hand. Without a word in it, the title is made again from the first message."""
        words = " ".join(title.split())
        with self._database.writing() as connection:
            tables.read_chat(connection, chat_id)
            made = words or tables.title_of_first_message(connection, chat_id)
            tables.set_title(connection, chat_id, made, by_hand=bool(words))
            return tables.read_chat(connection, chat_id)

    def tag(self, chat_id: str, tag: str) -> Chat:
        words = " ".join(rows.clean(tag).split())
        with self._database.writing() as connection:
            tables.read_chat(connection, chat_id)
            if words:
                tables.insert_tag(connection, chat_id, words)
            return tables.read_chat(connection, chat_id)

    def untag(self, chat_id: str, tag: str) -> Chat:
        with self._database.writing() as connection:
            connection.execute("DELETE FROM tags WHERE chat_id = ? AND tag = ?", (chat_id, tag))
            return tables.read_chat(connection, chat_id)

    def delete(self, chat_id: str) -> None:
        """Until it is purged, `undelete` brings it back."""
        with self._database.writing() as connection:
            tables.read_chat(connection, chat_id)
            tables.update_chat(connection, chat_id, {"deleted_at": self._clock()})

    def undelete(self, chat_id: str) -> Chat:
        with self._database.writing() as connection:
            tables.update_chat(connection, chat_id, {"deleted_at": None})
            return tables.read_chat(connection, chat_id)

    def purge(self, older_than_s: float = 0.0) -> int:
        """Chats that were deleted so long ago are gone for good. Returns how many. One whose answer
        is being written waits."""
        with self._database.writing() as connection:
            gone = connection.execute(
                """DELETE FROM chats WHERE deleted_at <= ?
                AND id NOT IN (SELECT chat_id FROM turns WHERE writer IS NOT NULL)""",
                (self._clock() - older_than_s,),
            ).rowcount
            if gone:
                forget_missing(connection)
            return gone

    # --- turns ----------------------------------------------------------------------------------

    def turns(self, chat_id: str) -> TurnTree:
        """All branches."""
        with self._database.reading() as connection:
            return TurnTree(tables.read_turns(connection, chat_id))

    def branch(self, leaf_id: str | None) -> list[Turn]:
        """From the first turn to this one; nothing for None."""
        with self._database.reading() as connection:
            return tables.read_branch(connection, leaf_id)

    def turn(self, turn_id: str) -> Turn:
        """Raises ChatNotFoundError."""
        with self._database.reading() as connection:
            return tables.read_turn(connection, turn_id)

    def add_turn(
        self,
        chat_id: str,
        parent_id: str | None,
        role: Role,
        text: str = "",
        *,
        reasoning: str = "",
        state: TurnState = TurnState.COMPLETE,
        attachments: Iterable[Attachment] = (),
        generation: Generation | None = None,
        error: str = "",
    ) -> Turn:
        """A new turn after `parent_id` (None: a first one), which the chat then shows. Beside
        others of the same parent it is a branch. A STREAMING one is this store's to `write`.

        A chat that another window deleted meanwhile comes back. Raises ChatNotFoundError.
        """
        turn = Turn(
            id=self._new_id(),
            chat_id=chat_id,
            parent_id=parent_id,
            role=role,
            text=rows.clean(text),
            reasoning=rows.clean(reasoning),
            state=state,
            error=error,
            attachments=tuple(attachments),
            generation=generation,
            created_at=self._clock(),
        )
        with self._database.writing() as connection:
            chat = tables.read_chat(connection, chat_id)
            if parent_id is not None:
                tables.read_turn_of(connection, chat_id, parent_id)
            tables.insert_turn(connection, turn)
            if state is TurnState.STREAMING:
                self._writer.hold()
                tables.take_turn(connection, turn.id, self._writer.name)
            self._touch(connection, chat_id, {"leaf_id": turn.id, "deleted_at": None})
            if role == "user" and not chat.title and not chat.titled_by_hand:
                made = tables.title_of_first_message(connection, chat_id)
                tables.set_title(connection, chat_id, made, by_hand=False)
            return tables.read_turn(connection, turn.id)

    def begin(self, turn_id: str) -> Turn:
        """An answer that ended goes on: it is STREAMING, and this store's to `write`. Raises
        AnswerUnderWayError where another window is writing it."""
        with self._database.writing() as connection:
            turn = tables.read_turn(connection, turn_id)
            writer = tables.writer_of(connection, turn_id)
            if writer is not None and not self._writer.is_gone(writer):
                raise AnswerUnderWayError
            self._writer.hold()
            tables.take_turn(connection, turn_id, self._writer.name)
            self._touch(connection, turn.chat_id, {"deleted_at": None})
            return replace(turn, state=TurnState.STREAMING)

    def write(self, turn_id: str, text: str, reasoning: str = "") -> None:
        """All of a STREAMING turn's text so far. Raises ChatNotFoundError once it is not this
        store's any more."""
        with self._database.writing() as connection:
            values = (rows.clean(text), rows.clean(reasoning), turn_id, self._writer.name)
            sql = "UPDATE turns SET text = ?, reasoning = ? WHERE id = ? AND writer = ?"
            if connection.execute(sql, values).rowcount == 0:
                raise ChatNotFoundError("answer under way", turn_id)

    def finish(
        self,
        turn_id: str,
        state: TurnState,
        *,
        text: str | None = None,
        reasoning: str | None = None,
        generation: Generation | None = None,
        error: str = "",
    ) -> Turn:
        """How a turn ended; what is not given stays as it was written."""
        changes: dict[str, object] = {"state": state.value, "error": rows.clean(error)}
        if text is not None:
            changes["text"] = rows.clean(text)
        if reasoning is not None:
            changes["reasoning"] = rows.clean(reasoning)
        if generation is not None:
            changes["generation"] = rows.generation_json(generation)
        with self._database.writing() as connection:
            tables.end_turn(connection, turn_id, changes)
            turn = tables.read_turn(connection, turn_id)
            self._touch(connection, turn.chat_id, {})
            return turn

    def set_leaf(self, chat_id: str, turn_id: str | None) -> Chat:
        """Which branch the chat shows; None shows nothing of it yet, for a new first message."""
        with self._database.writing() as connection:
            if turn_id is not None:
                tables.read_turn_of(connection, chat_id, turn_id)
            tables.update_chat(connection, chat_id, {"leaf_id": turn_id})
            return tables.read_chat(connection, chat_id)

    def recover(self) -> list[Turn]:
        """Answers whose writer's process has ended are INTERRUPTED from now on, and returned. Those
        that another window is writing are left alone."""
        with self._database.writing() as connection:
            found = connection.execute("SELECT DISTINCT writer FROM turns WHERE writer IS NOT NULL")
            gone = [name for (name,) in found if self._writer.is_gone(name)]
            return tables.interrupt(connection, gone)

    # --- out and in -----------------------------------------------------------------------------

    def conversation(self, chat_id: str) -> Conversation:
        """A chat with all its branches, for exchange.py."""
        with self._database.reading() as connection:
            chat = tables.read_chat(connection, chat_id)
            return Conversation(chat, tuple(tables.read_turns(connection, chat_id)))

    def add(self, conversations: Iterable[Conversation]) -> list[Chat]:
        """All of them, or none. One that has an id which is taken gets new ones throughout."""
        added: list[Chat] = []
        with self._database.writing() as connection:
            for conversation in conversations:
                if tables.is_taken(connection, conversation):
                    conversation = with_new_ids(conversation, self._new_id)
                tables.insert_conversation(connection, conversation)
                added.append(tables.read_chat(connection, conversation.chat.id))
        return added

    def put_back(self, conversation: Conversation) -> int:
        """After a repair, what a window still has of it. How many turns were not there."""
        with self._database.writing() as connection:
            return put_back(connection, conversation)

    # --- search, other windows, what is remembered ----------------------------------------------

    def search(self, words: str, *, limit: int = 50) -> list[Hit]:
        """Titles and turns that have all the words, titles first, then the newest turns. The last
        word may be unfinished, unless a space follows it. No sign in `words` means anything."""
        with self._database.reading() as connection:
            return found_hits(connection, words, limit)

    def changed(self) -> bool:
        """Whether another window or command wrote since this was last asked."""
        return self._database.changed()

    def last_model(self) -> str:
        """The model that was last used, here or in another window; "" before there was one."""
        with self._database.reading() as connection:
            return tables.read_fact(connection, _LAST_MODEL)

    def remember_model(self, model: str) -> None:
        with self._database.writing() as connection:
            tables.write_fact(connection, _LAST_MODEL, rows.clean(model))

    def _touch(
        self, connection: sqlite3.Connection, chat_id: str, changes: Mapping[str, object]
    ) -> None:
        used_at = tables.time_of_use(connection, self._clock())
        tables.update_chat(connection, chat_id, {"updated_at": used_at, **changes})
