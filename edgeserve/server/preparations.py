"""What the first answer with tools or a schema would wait for, built soon after its model is there.

Seconds for a large vocabulary, on a thread. Whoever takes the model away waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Protocol

_AFTER_SECONDS = 2.0
"""So that whoever asks at once is answered first. Python stands still meanwhile: while somebody is
answered, it is put off again."""


class Handle(Protocol):
    """A call that was put off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """An event loop's, or a test's."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Handle: ...


class Preparations:
    """Of models by name. For one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, Handle] = {}
        self._running: dict[str, asyncio.Future[None]] = {}

    def plan(self, name: str, prepare: Callable[[], object], is_busy: Callable[[], bool]) -> None:
        """Calls `prepare` a little later, when nobody is answered. Its errors are told when
        somebody needs it."""
        begin = partial(self._begin, name, prepare, is_busy)
        self._waiting[name] = self._clock.call_later(_AFTER_SECONDS, begin)

    async def settle(self, name: str) -> None:
        """Returns when nothing is prepared for the model, and nothing will be."""
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            waiting.cancel()
        running = self._running.get(name)
        if running is not None:
            await asyncio.wait((running,))

    def _begin(self, name: str, prepare: Callable[[], object], is_busy: Callable[[], bool]) -> None:
        del self._waiting[name]
        if is_busy():
            self.plan(name, prepare, is_busy)
            return
        running = asyncio.ensure_future(_run(prepare))
        self._running[name] = running
        running.add_done_callback(lambda _: self._running.pop(name))


async def _run(prepare: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        await asyncio.to_thread(prepare)
