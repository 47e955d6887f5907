"""What a window still has in memory of a chat goes back where damage has taken it from the file."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from edgeserve.chats import rows, tables
from edgeserve.chats.records import Chat, Conversation, Turn, TurnState
from edgeserve.chats.search import index_turn


def put_back(connection: sqlite3.Connection, conversation: Conversation) -> int:
    """Every turn of it in its place and order, under its own id. How many were not there; where
    that is none, nothing is changed."""
    sql = "SELECT 1 FROM turns WHERE id = ?"
    missing = {
        turn.id for turn in conversation.turns if not connection.execute(sql, (turn.id,)).fetchone()
    }
    if not missing:
        return 0
    _put_chat(connection, conversation.chat)
    for turn in conversation.turns:
        if turn.id in missing:
            is_streaming = turn.state is TurnState.STREAMING  # whoever writes it ends it later
            state = TurnState.INTERRUPTED if is_streaming else turn.state
            tables.insert_turn(connection, replace(turn, state=state))
        else:
            _move_to_end(connection, turn)
    tables.update_chat(connection, conversation.chat.id, {"leaf_id": conversation.chat.leaf_id})
    return len(missing)


def _put_chat(connection: sqlite3.Connection, chat: Chat) -> None:
    sql = "SELECT title FROM chats WHERE id = ?"
    found = connection.execute(sql, (chat.id,)).fetchone()
    if found is None:
        tables.insert_chat(connection, replace(chat, leaf_id=None, deleted_at=None))
        return
    changes: dict[str, object] = {
        "pinned": int(chat.pinned),
        "system_prompt": chat.system_prompt,
        "settings": rows.settings_json(chat.settings),
    }
    tables.update_chat(connection, chat.id, changes)
    if found[0] != chat.title:
        tables.set_title(connection, chat.id, chat.title, by_hand=False)
    for tag in chat.tags:
        tables.insert_tag(connection, chat.id, tag)


def _move_to_end(connection: sqlite3.Connection, turn: Turn) -> None:
    """Behind those that were put back before it: a parent stands before its children."""
    sql = "SELECT seq, text, state FROM turns WHERE id = ?"
    before, text, state = connection.execute(sql, (turn.id,)).fetchone()
    sql = """UPDATE turns SET parent_id = ?, seq = (SELECT max(seq) + 1 FROM turns)
        WHERE id = ? RETURNING seq"""
    (seq,) = connection.execute(sql, (turn.parent_id, turn.id)).fetchone()
    connection.execute("DELETE FROM turn_words WHERE rowid = ?", (before,))
    if state != TurnState.STREAMING.value:
        index_turn(connection, seq, text)
