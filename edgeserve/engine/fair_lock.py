"""A mutex that serves threads in the order in which they came. Knows nothing of engines."""

from __future__ import annotations

import threading
from collections import deque


class FairLock:
    """Like threading.Lock, which lets a thread that releases it take it again before those that
    wait have woken: a loop of steps would keep everyone else from their text."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._turns: deque[threading.Lock] = deque()
        self._holder: threading.Lock | None = None

    def take(self, turn: threading.Lock) -> None:
        """Waits until the lock is `turn`'s: a new, acquired threading.Lock.

        Ctrl-C may come at any moment, also between being given the lock and knowing it. So
        whoever calls this gives the turn back however it ends.
        """
        with self._mutex:
            if self._holder is None:
                self._holder = turn
            else:
                self._turns.append(turn)
        if self._holder is not turn:
            turn.acquire()

    def give_back(self, turn: threading.Lock) -> None:
        """Passes the lock on if it is `turn`'s, and takes `turn` out of the line if it waits."""
        with self._mutex:
            if self._holder is turn:
                self._pass_on()
            elif turn in self._turns:
                self._turns.remove(turn)

    def try_take(self, turn: threading.Lock) -> bool:
        """Takes the lock if it is free. Never waits, so it may be called from anywhere."""
        if not self._mutex.acquire(blocking=False):
            return False
        if self._holder is None:
            self._holder = turn
        self._mutex.release()
        return self._holder is turn

    def is_held_by(self, turn: threading.Lock) -> bool:
        return self._holder is turn

    def _pass_on(self) -> None:
        if self._turns:
            self._holder = self._turns.popleft()
            self._holder.release()
        else:
            self._holder = None


def new_turn() -> threading.Lock:
    """What FairLock.take waits with."""
    turn = threading.Lock()
    turn.acquire()
    return turn
