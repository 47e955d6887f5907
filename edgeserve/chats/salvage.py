"""A damaged file of conversations: what can be read of it goes into a new one, row by row."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgeserve.chats.rows import CHAT_COLUMNS, TURN_COLUMNS, RowError, chat_of, turn_of
from edgeserve.chats.search import index_title, index_turn
from edgeserve.frozen import frozen

COMPANIONS = ("", "-wal", "-shm")
"""What SQLite adds to a file's name for what belongs to it."""

_TURN_COLUMNS = f"{TURN_COLUMNS}, writer"  # another window may be writing an answer
_INTERRUPTED = "interrupted"
_TURNS_TITLE = "Found in a damaged file"


@frozen
class Salvage:
    """What came of a damaged file. `kept_as` is where it lies now; of the rows that were there,
    `num_lost_rows` at most could not be read."""

    kept_as: Path
    num_chats: int
    num_turns: int
    num_lost_rows: int


def move_aside(path: Path) -> Path:
    """Gives the file, and what belongs to it, a name that is free."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    for suffix in COMPANIONS:
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    return aside


def _text_of(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


class Rescue:
    """Copies what can be read of a damaged file into a new one that has its tables."""

    def __init__(self, damaged: Path, fresh: sqlite3.Connection) -> None:
        self.num_chats = 0
        self.num_turns = 0
        self.num_lost_rows = 0
        self._fresh = fresh
        self._old = sqlite3.connect(damaged, isolation_level=None)
        self._old.text_factory = _text_of
        self._chats: set[str] = set()
        self._last_turns: dict[str, str] = {}  # the last turn that was read of each chat
        self._turns: set[str] = set()

    def run(self) -> None:
        """Inside a write transaction of the new file's connection."""
        try:
            for row in self._rows("chats", CHAT_COLUMNS):
                self._keep_chat(row)
            for row in self._rows("turns", _TURN_COLUMNS):
                self._keep_turn(row)
            for table in ("tags", "facts"):
                self._copy(table)
            self._mend_leaves()
        finally:
            with suppress(sqlite3.Error):
                self._old.close()

    def _rows(self, table: str, columns: str) -> Iterator[list[Any]]:
        """Each row by its number, so that a broken page costs its own rows only."""
        for seq in range(1, self._last_seq(table) + 1):
            try:
                sql = f"SELECT {columns} FROM {table} WHERE seq = ?"
                row = self._old.execute(sql, (seq,)).fetchone()
            except sqlite3.Error:
                self.num_lost_rows += 1
                continue
            if row is not None:
                yield list(row)

    def _last_seq(self, table: str) -> int:
        """The largest number there may be, by whichever of two places can be read."""
        largest = 0
        for sql in (
            f"SELECT max(seq) FROM {table}",
            f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'",
        ):
            with suppress(sqlite3.Error):
                for (number,) in self._old.execute(sql):
                    largest = max(largest, number or 0)
        return largest

    def _keep_chat(self, row: list[Any]) -> None:
        try:
            chat_of(row, ())
        except RowError:
            row[8] = "{}"  # settings are the only field that is more than a word or a number
        if self._insert("chats", CHAT_COLUMNS, row, title=str(row[1])):
            self.num_chats += 1
            self._chats.add(row[0])

    def _keep_turn(self, row: list[Any]) -> None:
        try:
            turn_of(row)
        except RowError:
            row[6], row[8], row[9], row[11] = _INTERRUPTED, "[]", None, None
        if row[6] == "streaming" and row[11] is None:
            row[6] = _INTERRUPTED
        chat_id = str(row[1])
        if chat_id not in self._chats:
            self._make_chat(chat_id, row[10])
        if row[2] is not None and row[2] not in self._turns:
            row[2] = self._last_turns.get(chat_id)
        if self._insert("turns", _TURN_COLUMNS, row, text=str(row[4])):
            self.num_turns += 1
            self._turns.add(row[0])
            self._last_turns[chat_id] = row[0]

    def _make_chat(self, chat_id: str, at: object) -> None:
        """For turns whose own chat could not be read."""
        row = [chat_id, _TURNS_TITLE, 0, at, at, 0, "", "", "{}", None, "", None]
        if self._insert("chats", CHAT_COLUMNS, row, title=_TURNS_TITLE):
            self.num_chats += 1
            self._chats.add(chat_id)

    def _insert(
        self,
        table: str,
        columns: str,
        row: Sequence[object],
        *,
        title: str | None = None,
        text: str | None = None,
    ) -> bool:
        places = ", ".join("?" * len(row))
        try:
            cursor = self._fresh.execute(f"INSERT INTO {table} ({columns}) VALUES ({places})", row)
        except sqlite3.IntegrityError:  # an id twice, or nothing where a word must be
            self.num_lost_rows += 1
            return False
        if title is not None:
            index_title(self._fresh, cursor.lastrowid or 0, title)
        if text is not None:
            index_turn(self._fresh, cursor.lastrowid or 0, text)
        return True

    def _copy(self, table: str) -> None:
        """A small table, as far as it can be read."""
        with suppress(sqlite3.DatabaseError):
            for row in self._old.execute(f"SELECT * FROM {table}"):
                with suppress(sqlite3.IntegrityError):
                    self._fresh.execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?)", row)

    def _mend_leaves(self) -> None:
        """A chat shows a turn that is there, the last one if need be."""
        self._fresh.execute(
            """UPDATE chats SET leaf_id = (
                SELECT id FROM turns WHERE chat_id = chats.id ORDER BY seq DESC LIMIT 1)
            WHERE leaf_id IS NULL OR leaf_id NOT IN (SELECT id FROM turns)"""
        )
