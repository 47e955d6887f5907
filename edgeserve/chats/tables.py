"""Single reads and writes of the tables, each inside a transaction of the caller's."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from edgeserve.chats.records import Chat, Conversation, Turn, TurnState
from edgeserve.chats.rows import CHAT_COLUMNS, TURN_COLUMNS, chat_of, chat_row, turn_of, turn_row
from edgeserve.chats.search import index_title, index_turn
from edgeserve.chats.titles import made_title
from edgeserve.errors import ChatNotFoundError

_BRANCH = f"""WITH RECURSIVE up (id, parent_id, depth) AS (
    SELECT id, parent_id, 0 FROM turns WHERE id = ?
    UNION ALL
    SELECT turns.id, turns.parent_id, depth + 1 FROM turns JOIN up ON turns.id = up.parent_id
) SELECT {", ".join(f"turns.{name}" for name in TURN_COLUMNS.split(", "))}
FROM turns JOIN up USING (id) ORDER BY depth DESC"""


HAS_TURNS = "EXISTS (SELECT 1 FROM turns WHERE chat_id = chats.id)"


# --- chats ---------------------------------------------------------------------------------------


def read_chats(connection: sqlite3.Connection, rest: str, *values: object) -> list[Chat]:
    """Chats as the `rest` of the statement chooses and orders them."""
    tags: dict[str, list[str]] = {}
    for chat_id, tag in connection.execute("SELECT chat_id, tag FROM tags ORDER BY chat_id, tag"):
        tags.setdefault(chat_id, []).append(tag)
    found = connection.execute(f"SELECT {CHAT_COLUMNS} FROM chats {rest}", values)
    return [chat_of(row, tags.get(row[0], ())) for row in found]


def read_chat(connection: sqlite3.Connection, chat_id: str) -> Chat:
    """Raises ChatNotFoundError."""
    sql = f"SELECT {CHAT_COLUMNS} FROM chats WHERE id = ?"
    row = connection.execute(sql, (chat_id,)).fetchone()
    if row is None:
        raise ChatNotFoundError("chat", chat_id)
    found = connection.execute("SELECT tag FROM tags WHERE chat_id = ? ORDER BY tag", (chat_id,))
    return chat_of(row, [tag for (tag,) in found])


def latest_chat(connection: sqlite3.Connection, condition: str = "") -> Chat | None:
    rest = f"WHERE deleted_at IS NULL {condition} ORDER BY updated_at DESC, seq DESC LIMIT 1"
    found = read_chats(connection, rest)
    return found[0] if found else None


def time_of_use(connection: sqlite3.Connection, now: float) -> float:
    """When a chat that is used now was used: after all others. One that came from elsewhere, or was
    used before a wrong clock was put right, may have been used in the future."""
    (newest,) = connection.execute("SELECT max(updated_at) FROM chats").fetchone()
    return now if newest is None or newest <= now else math.nextafter(newest, math.inf)


def delete_if_bare(connection: sqlite3.Connection, chat: Chat) -> bool:
    """Takes away a chat in which nothing was said, and that nobody named, tagged or pinned."""
    if chat.title or chat.tags or chat.pinned:
        return False
    sql = f"DELETE FROM chats WHERE id = ? AND NOT {HAS_TURNS} RETURNING seq"
    gone = connection.execute(sql, (chat.id,)).fetchall()
    connection.executemany("DELETE FROM title_words WHERE rowid = ?", gone)
    return bool(gone)


def insert_chat(connection: sqlite3.Connection, chat: Chat) -> None:
    row = chat_row(chat)
    places = ", ".join("?" * len(row))
    sql = f"INSERT INTO chats ({CHAT_COLUMNS}) VALUES ({places})"
    seq = connection.execute(sql, row).lastrowid or 0
    index_title(connection, seq, chat.title)
    for tag in chat.tags:
        insert_tag(connection, chat.id, tag)


def update_chat(
    connection: sqlite3.Connection, chat_id: str, changes: Mapping[str, object]
) -> None:
    """Sets columns of a chat, and leaves the others."""
    if changes:
        columns = ", ".join(f"{name} = ?" for name in changes)
        connection.execute(f"UPDATE chats SET {columns} WHERE id = ?", (*changes.values(), chat_id))


def insert_tag(connection: sqlite3.Connection, chat_id: str, tag: str) -> None:
    connection.execute("INSERT OR IGNORE INTO tags VALUES (?, ?)", (chat_id, tag))


def set_title(connection: sqlite3.Connection, chat_id: str, title: str, *, by_hand: bool) -> None:
    update_chat(connection, chat_id, {"title": title, "titled_by_hand": int(by_hand)})
    (seq,) = connection.execute("SELECT seq FROM chats WHERE id = ?", (chat_id,)).fetchone()
    index_title(connection, seq, title)


def title_of_first_message(connection: sqlite3.Connection, chat_id: str) -> str:
    """Made of the first message that has words, or of the names of its files."""
    sql = f"""SELECT {TURN_COLUMNS} FROM turns WHERE chat_id = ? AND role = 'user'
        ORDER BY seq LIMIT 3"""
    for turn in map(turn_of, connection.execute(sql, (chat_id,))):
        names = ", ".join(each.path for each in turn.attachments)
        title = made_title(turn.text) or made_title(names)
        if title:
            return title
    return ""


# --- turns ---------------------------------------------------------------------------------------


def read_turn(connection: sqlite3.Connection, turn_id: str) -> Turn:
    """Raises ChatNotFoundError."""
    sql = f"SELECT {TURN_COLUMNS} FROM turns WHERE id = ?"
    row = connection.execute(sql, (turn_id,)).fetchone()
    if row is None:
        raise ChatNotFoundError("turn", turn_id)
    return turn_of(row)


def read_turn_of(connection: sqlite3.Connection, chat_id: str, turn_id: str) -> Turn:
    """Raises ChatNotFoundError also for a turn of another chat."""
    turn = read_turn(connection, turn_id)
    if turn.chat_id != chat_id:
        raise ChatNotFoundError("turn of this chat", turn_id)
    return turn


def read_turns(connection: sqlite3.Connection, chat_id: str) -> list[Turn]:
    sql = f"SELECT {TURN_COLUMNS} FROM turns WHERE chat_id = ? ORDER BY seq"
    return [turn_of(row) for row in connection.execute(sql, (chat_id,))]


def read_branch(connection: sqlite3.Connection, leaf_id: str | None) -> list[Turn]:
    return [turn_of(row) for row in connection.execute(_BRANCH, (leaf_id,))]


def insert_turn(connection: sqlite3.Connection, turn: Turn) -> None:
    """A STREAMING one is found by a search once it ends."""
    row = turn_row(turn)
    places = ", ".join("?" * len(row))
    sql = f"INSERT INTO turns ({TURN_COLUMNS}) VALUES ({places})"
    seq = connection.execute(sql, row).lastrowid or 0
    if turn.state is not TurnState.STREAMING:
        index_turn(connection, seq, turn.text)


def writer_of(connection: sqlite3.Connection, turn_id: str) -> str | None:
    """Who writes a turn now, if anybody does."""
    row = connection.execute("SELECT writer FROM turns WHERE id = ?", (turn_id,)).fetchone()
    return None if row is None else row[0]


def take_turn(connection: sqlite3.Connection, turn_id: str, writer: str) -> None:
    connection.execute(
        "UPDATE turns SET state = ?, writer = ? WHERE id = ?",
        (TurnState.STREAMING.value, writer, turn_id),
    )


def end_turn(connection: sqlite3.Connection, turn_id: str, changes: Mapping[str, object]) -> None:
    """Sets columns of a turn that nobody writes from now on."""
    columns = ", ".join(f"{name} = ?" for name in changes)
    connection.execute(
        f"UPDATE turns SET {columns}, writer = NULL WHERE id = ?", (*changes.values(), turn_id)
    )
    sql = "SELECT seq, text FROM turns WHERE id = ?"
    for seq, text in connection.execute(sql, (turn_id,)).fetchall():
        index_turn(connection, seq, text)


def interrupt(connection: sqlite3.Connection, writers: Iterable[str]) -> list[Turn]:
    """Ends what these writers had under way."""
    found: Sequence[tuple[str]] = [
        row
        for writer in writers
        for row in connection.execute("SELECT id FROM turns WHERE writer = ?", (writer,))
    ]
    for (turn_id,) in found:
        end_turn(connection, turn_id, {"state": TurnState.INTERRUPTED.value})
    return [read_turn(connection, turn_id) for (turn_id,) in found]


def ids_of_turn(connection: sqlite3.Connection, seq: int) -> tuple[str, str]:
    """The turn's own and its chat's."""
    return connection.execute("SELECT id, chat_id FROM turns WHERE seq = ?", (seq,)).fetchone()


# --- conversations -------------------------------------------------------------------------------


def is_taken(connection: sqlite3.Connection, conversation: Conversation) -> bool:
    """Whether something of its ids is there already, be it deleted."""
    if connection.execute("SELECT 1 FROM chats WHERE id = ?", (conversation.chat.id,)).fetchone():
        return True
    sql = "SELECT 1 FROM turns WHERE id = ?"
    return any(connection.execute(sql, (turn.id,)).fetchone() for turn in conversation.turns)


def insert_conversation(connection: sqlite3.Connection, conversation: Conversation) -> None:
    """Its turns' parents stand before them."""
    insert_chat(connection, replace(conversation.chat, deleted_at=None))
    for turn in conversation.turns:
        insert_turn(connection, turn)
    if not conversation.chat.title:
        made = title_of_first_message(connection, conversation.chat.id)
        set_title(connection, conversation.chat.id, made, by_hand=False)


# --- facts ---------------------------------------------------------------------------------------


def read_fact(connection: sqlite3.Connection, name: str) -> str:
    row = connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
    return "" if row is None else str(row[0])


def write_fact(connection: sqlite3.Connection, name: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))
