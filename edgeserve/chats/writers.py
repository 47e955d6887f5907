"""Who is writing an answer now: a file per writer, locked for as long as its process lives.

The system lets go of the lock however a process ends, and keeps it for one that is only stopped
(Ctrl+Z): so a turn whose writer's file can be locked by somebody else was interrupted.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import FileLock


class Writer:
    """One ChatStore's name as a writer. The lock is taken with its first answer."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._folder = folder
        self._lock: FileLock | None = None

    def hold(self) -> None:
        """Before a turn names this writer. Raises OSError where no file can be made."""
        if self._lock is not None:
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        lock = _lock(self._folder, self.name)
        lock.acquire(blocking=False)
        self._lock = lock

    def let_go(self) -> None:
        if self._lock is None:
            return
        with suppress(OSError):
            (self._folder / self.name).unlink()
        self._lock.release()
        self._lock = None

    def is_gone(self, name: str) -> bool:
        """Whether another writer's process has ended. Its file is taken away then."""
        if name == self.name:
            return False
        path = self._folder / name
        if not path.exists():
            return True
        from filelock import Timeout

        lock = _lock(self._folder, name)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        with suppress(OSError):
            path.unlink()
        lock.release()
        return True


def _lock(folder: Path, name: str) -> FileLock:
    from filelock import FileLock  # late, or it keeps the first screen back

    return FileLock(folder / name, mode=0o600, thread_local=False)
