"""What a search finds, as chats and turns rather than rows."""

from __future__ import annotations

import sqlite3

from edgeserve.chats import tables
from edgeserve.chats.records import Chat, Hit
from edgeserve.chats.search import find_titles, find_turns


def found_hits(connection: sqlite3.Connection, words: str, limit: int) -> list[Hit]:
    """Titles first, then the newest turns."""
    hits = [
        Hit(chat, None, found.snippet, found.marks)
        for found in find_titles(connection, words, limit)
        for chat in tables.read_chats(connection, "WHERE seq = ?", found.seq)
    ]
    chats: dict[str, Chat] = {}
    for found in find_turns(connection, words, limit - len(hits)):
        turn_id, chat_id = tables.ids_of_turn(connection, found.seq)
        chat = chats.get(chat_id) or tables.read_chat(connection, chat_id)
        chats[chat_id] = chat
        hits.append(Hit(chat, turn_id, found.snippet, found.marks))
    return hits
