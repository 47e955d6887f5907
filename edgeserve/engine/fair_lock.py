"""A mutex that serves threads in the order in which they came. Knows nothing of engines."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class FairLock:
    """Like threading.Lock, which lets a thread that releases it take it again before those that
    wait have woken: a loop of steps would keep everyone else from their text."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._turns: deque[threading.Lock] = deque()
        self._held = False

    def __enter__(self) -> None:
        turn = threading.Lock()
        turn.acquire()
        with self._mutex:
            if not self._held:
                self._held = True
                return
            self._turns.append(turn)
        try:
            turn.acquire()
        except BaseException:  # Ctrl-C while waiting: step out of the line
            self._leave(turn)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def try_acquire(self) -> bool:
        """Takes the lock if it is free. Never waits, so it may be called from anywhere."""
        if not self._mutex.acquire(blocking=False):
            return False
        with_luck = not self._held
        self._held = True
        self._mutex.release()
        return with_luck

    def release(self) -> None:
        with self._mutex:
            if self._turns:
                self._turns.popleft().release()
            else:
                self._held = False

    def _leave(self, turn: threading.Lock) -> None:
        with self._mutex:
            waits = turn in self._turns
            if waits:
                self._turns.remove(turn)
        if not waits:  # it had become ours in the meantime
            self.release()
