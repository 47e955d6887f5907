"""SIGTERM and SIGHUP while a program holds the terminal: it is given time to end in order."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType

_BOUND_S = 8.0


class Ending:
    """`code` is what the process ends with: 128 + the signal's number, 0 before one came."""

    def __init__(self, end: Callable[[], Awaitable[None]], bound_s: float) -> None:
        self.code = 0
        self._end = end
        self._bound_s = bound_s
        self._late: threading.Timer | None = None
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Future[None] | None = None

    def came(self, number: int, _: FrameType | None) -> None:
        """Once. What takes too long, because the terminal it writes to is gone, is cut short."""
        if self.code:
            return
        self.code = 128 + number
        self._late = threading.Timer(self._bound_s, os._exit, [self.code])
        self._late.daemon = True
        self._late.start()
        self._loop.call_soon_threadsafe(self._begin)

    def ended_in_time(self) -> None:
        """The process goes on, or ends by itself: nothing cuts it short any more."""
        if self._late is not None:
            self._late.cancel()

    def _begin(self) -> None:
        self._task = asyncio.ensure_future(self._end())


@contextmanager
def ended_by_signals(
    end: Callable[[], Awaitable[None]], *, bound_s: float = _BOUND_S
) -> Generator[Ending]:
    """Awaits `end` on the running loop when a signal asks the process to go.

    `bound_s` after a signal the process ends, unless the block was left before.

    Not by the loop's own handlers: Python calls these also while the loop waits for a terminal.
    """
    ending = Ending(end, bound_s)
    names = ("SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, ending.came) for number in numbers}
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ending.ended_in_time()
