"""The tables of the file of conversations, and the steps that lead from each version to the next.

`user_version` counts the steps a file has had. A step that was released is never edited.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from edgeserve.errors import ChatsForeignError, ChatsNewerError, SearchMissingError

APPLICATION_ID = 0x65647365  # "edse"

_FIRST = (
    """CREATE TABLE chats (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        title TEXT NOT NULL,
        titled_by_hand INTEGER NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        pinned INTEGER NOT NULL,
        model TEXT NOT NULL,
        system_prompt TEXT NOT NULL,
        settings TEXT NOT NULL, -- JSON
        leaf_id TEXT,
        draft TEXT NOT NULL,
        deleted_at REAL
    )""",
    "CREATE INDEX chats_by_time ON chats (updated_at)",
    """CREATE TABLE tags (
        chat_id TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        tag TEXT NOT NULL,
        PRIMARY KEY (chat_id, tag)
    ) WITHOUT ROWID""",
    # A parent is in the same chat. `writer` holds a streaming turn: see writers.py.
    """CREATE TABLE turns (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        chat_id TEXT NOT NULL REFERENCES chats (id) ON DELETE CASCADE,
        parent_id TEXT,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        reasoning TEXT NOT NULL,
        state TEXT NOT NULL,
        error TEXT NOT NULL,
        attachments TEXT NOT NULL, -- JSON
        generation TEXT, -- JSON
        created_at REAL NOT NULL,
        writer TEXT,
        UNIQUE (chat_id, id),
        FOREIGN KEY (chat_id, parent_id) REFERENCES turns (chat_id, id)
            ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
    )""",
    "CREATE INDEX turns_by_parent ON turns (chat_id, parent_id)",
    "CREATE INDEX turns_under_way ON turns (writer) WHERE writer IS NOT NULL",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # What the search reads (search.py): rows have the numbers of their turns and chats.
    "CREATE VIRTUAL TABLE turn_words USING fts5(text, tokenize = 'unicode61 remove_diacritics 2')",
    "CREATE VIRTUAL TABLE title_words USING fts5(text, tokenize = 'unicode61 remove_diacritics 2')",
    f"PRAGMA application_id = {APPLICATION_ID}",
)

STEPS: Sequence[Sequence[str]] = (_FIRST,)


def require_ours(
    connection: sqlite3.Connection, path: Path, steps: Sequence[Sequence[str]] = STEPS
) -> None:
    """Raises ChatsForeignError or ChatsNewerError, before anything is written."""
    if _number(connection, "PRAGMA schema_version") == 0:
        return  # nothing was ever made in it
    if _number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise ChatsForeignError(path)
    version = _number(connection, "PRAGMA user_version")
    if version > len(steps):
        raise ChatsNewerError(path, version, len(steps))


def migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Takes the file to the newest version: wholly, or not at all. Inside a write transaction.

    Raises SearchMissingError where SQLite cannot search.
    """
    version = _number(connection, "PRAGMA user_version")
    for step in steps[version:]:
        for statement in step:
            try:
                connection.execute(statement)
            except sqlite3.OperationalError as error:
                if "no such module" in str(error):
                    raise SearchMissingError(sqlite3.sqlite_version) from error
                raise
    if version < len(steps):
        connection.execute(f"PRAGMA user_version = {len(steps)}")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(pragma).fetchone()[0])
