"""What is built ahead of the first answer with tools: when nobody is answered, and never twice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from edgeserve.server.preparations import Preparations


class Clock:
    """Its calls come when a test says so."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def time(self) -> float:
        return 0.0

    def call_later(self, _delay: float, callback: Callable[[], None], /) -> Clock:
        self.due.append(callback)
        return self

    def cancel(self) -> None:
        self.due.clear()

    def pass_by(self) -> None:
        due, self.due = self.due, []
        for call in due:
            call()


def test_it_is_put_off_while_somebody_is_answered() -> None:
    async def prepare() -> list[str]:
        clock, log, busy = Clock(), list[str](), [True, True, False]
        preparations = Preparations(clock)
        preparations.plan("m", lambda: log.append("built"), lambda: busy.pop(0))
        for _ in range(3):
            clock.pass_by()
            await preparations.settle("other")
            log.append("looked")
        await preparations.settle("m")
        return log

    assert asyncio.run(prepare()) == ["looked", "looked", "looked", "built"]


def test_whoever_takes_the_model_away_waits_for_what_runs_and_begins_nothing() -> None:
    async def take_away() -> tuple[bool, list[Callable[[], None]]]:
        clock, goes_on = Clock(), threading.Event()
        preparations = Preparations(clock)
        preparations.plan("runs", goes_on.wait, lambda: False)
        clock.pass_by()
        preparations.plan("waits", goes_on.wait, lambda: False)
        await preparations.settle("waits")
        settling = asyncio.ensure_future(preparations.settle("runs"))
        await asyncio.sleep(0)
        waited = not settling.done()
        goes_on.set()
        await settling
        return waited, clock.due

    assert asyncio.run(take_away()) == (True, [])


def test_an_error_is_left_to_whoever_needs_it() -> None:
    async def fail() -> None:
        clock = Clock()
        preparations = Preparations(clock)
        preparations.plan("m", lambda: 1 / 0, lambda: False)
        clock.pass_by()
        await preparations.settle("m")

    asyncio.run(fail())
