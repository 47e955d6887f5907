"""The file of conversations as SQLite: opening it, transactions, and what its errors mean.

Knows no chats. Several windows may have one file open; each has a ChatDatabase of its own.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgeserve.chats import schema
from edgeserve.chats.salvage import COMPANIONS, Rescue, Salvage, move_aside
from edgeserve.errors import (
    ChatsBusyError,
    ChatsDamagedError,
    ChatsDiskError,
    ChatsDiskFullError,
    ChatsError,
    ChatsFileError,
    ChatsReadOnlyError,
)

_READ_ONLY = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
)
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_LITTLE_ROOM = 2**17  # bytes


class ChatDatabase:
    """One connection. A damaged file is moved aside when it is opened, and `salvage` says so.

    Raises a ChatsFileError where the file cannot be used.
    """

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        self.path = path
        self.salvage: Salvage | None = None
        self._busy_timeout_s = busy_timeout_s
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._seen_version = -1
        self._open()

    def close(self) -> None:
        """Twice is fine."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    # --- transactions ---------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Generator[sqlite3.Connection]:
        """Everything that is read inside is of one moment."""
        with self._lock, self._explained():
            connection = self._current()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Generator[sqlite3.Connection]:
        """What is written inside is kept when this returns, or was never there."""
        with self._lock, self._explained():
            connection = self._current()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    def changed(self) -> bool:
        """Whether another connection wrote since this was last asked."""
        with self._lock, self._explained():
            version = int(self._current().execute("PRAGMA data_version").fetchone()[0])
            seen, self._seen_version = self._seen_version, version
            return version != seen

    def reopen(self) -> None:
        """Repairs the file where damage was met."""
        with self._lock:
            self.close()
            self._open()

    # --- opening --------------------------------------------------------------------------------

    def _open(self) -> None:
        with self._explained():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._alone():
                self._connection = self._connect_or_repair()
            self.changed()

    def _connect_or_repair(self) -> sqlite3.Connection:
        if not self.path.exists() and self._repaired.exists():
            os.replace(self._repaired, self.path)  # a repair that was cut off before its last step
        try:
            if self._damage_note.exists():
                raise ChatsDamagedError(self.path, "met before")
            return self._connect()
        except ChatsDamagedError:
            self.salvage = self._repair()
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = self._connection_to(self.path)
        self._file = _identity(self.path)
        return connection

    def _connection_to(self, path: Path) -> sqlite3.Connection:
        # Nobody else may read what is said to a model.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(
            path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            with self._explained():
                schema.require_ours(connection, path)
                connection.execute("PRAGMA journal_mode = WAL")
                # FULL: what the user was told is kept also survives a power cut.
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("BEGIN IMMEDIATE")
                schema.migrate(connection)
                connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    def _repair(self) -> Salvage:
        """The new file is whole before the damaged one moves away: a repair that is cut off, or
        finds no room, leaves everything where it was."""
        for suffix in COMPANIONS:
            Path(f"{self._repaired}{suffix}").unlink(missing_ok=True)
        fresh = self._connection_to(self._repaired)
        try:
            rescue = Rescue(self.path, fresh)
            fresh.execute("BEGIN IMMEDIATE")
            rescue.run()
            fresh.execute("COMMIT")
        finally:
            fresh.close()  # which also takes its -wal away
        aside = move_aside(self.path)
        os.replace(self._repaired, self.path)
        self._damage_note.unlink(missing_ok=True)
        return Salvage(aside, rescue.num_chats, rescue.num_turns, rescue.num_lost_rows)

    def _current(self) -> sqlite3.Connection:
        """The connection; a new one where another window has put a repaired file in place."""
        if self._connection is None:
            raise ChatsError("the chats are closed; open them again")
        if _identity(self.path) != self._file:
            self.reopen()
            self._seen_version = -1  # whatever was read before may be otherwise now
        return self._connection

    @contextmanager
    def _alone(self) -> Generator[None]:
        """One window at a time makes, migrates or repairs the file."""
        from filelock import FileLock, Timeout  # late, or it keeps the first screen back

        lock = FileLock(
            self._beside(".lock"), timeout=self._busy_timeout_s, mode=0o600, thread_local=False
        )
        try:
            lock.acquire()
        except Timeout as error:
            raise ChatsBusyError(self.path, self._busy_timeout_s) from error
        try:
            yield
        finally:
            lock.release()

    @property
    def _damage_note(self) -> Path:
        """Stands beside the file from when damage is met until it is opened anew."""
        return self._beside(".damage-met")

    @property
    def _repaired(self) -> Path:
        return self._beside(".repaired")

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    # --- errors ---------------------------------------------------------------------------------

    @contextmanager
    def _explained(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            explained = self._meaning(error)
            if isinstance(explained, ChatsDamagedError):
                with suppress(OSError):
                    self._damage_note.touch(mode=0o600)
            raise explained from error
        except OSError as error:
            raise self._meaning_of_system(error) from error

    def _meaning(self, error: sqlite3.Error) -> ChatsFileError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # above are finer distinctions
        if code == sqlite3.SQLITE_FULL:
            return ChatsDiskFullError(self.path)
        if code in _DAMAGED:
            return ChatsDamagedError(self.path, str(error))
        if code in _READ_ONLY:
            return ChatsReadOnlyError(self.path, str(error))
        if code in _BUSY:
            return ChatsBusyError(self.path, self._busy_timeout_s)
        if code == sqlite3.SQLITE_IOERR:
            # Some of SQLite's own files cannot grow on a full disk, and it says no more than this.
            if self._is_full():
                return ChatsDiskFullError(self.path)
            return ChatsDiskError(self.path, str(error))
        return ChatsFileError(self.path, str(error))

    def _meaning_of_system(self, error: OSError) -> ChatsFileError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return ChatsDiskFullError(self.path)
        cause = error.strerror or str(error)
        if error.errno == errno.EIO:
            return ChatsDiskError(self.path, cause)
        return ChatsReadOnlyError(self.path, cause)

    def _is_full(self) -> bool:
        try:
            return shutil.disk_usage(self.path.parent).free < _LITTLE_ROOM
        except OSError:
            return False


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file stands at a path now."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
