"""When requests are sent: chats come at random, or so many at a time; turns in their order."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol

from edgeserve.bench.load.exchange import Exchange
from edgeserve.bench.load.prompts import Chat
from edgeserve.bench.load.stream import Message, Place
from edgeserve.errors import InvalidRequestError
from edgeserve.frozen import frozen


@frozen
class Poisson:
    """Chats begin independently of one another, so many a second on average, answered or not."""

    rate: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf"):
            raise InvalidRequestError("--rate", self.rate, "more than 0 requests a second")

    def arrivals(self) -> Iterator[float]:
        """Seconds after the start, the first at 0."""
        source = random.Random(f"arrivals {self.seed}")
        at = 0.0
        while True:
            yield at
            at += source.expovariate(self.rate)


@frozen
class Concurrent:
    """So many chats at a time: the next begins when one has ended."""

    chats: int

    def __post_init__(self) -> None:
        if self.chats < 1:
            raise InvalidRequestError("--concurrency", self.chats, "1 or more")


Pacing = Poisson | Concurrent


class Send(Protocol):
    """One request: what happened, and the answer's text."""

    def __call__(
        self, messages: Sequence[Message], place: Place
    ) -> Awaitable[tuple[Exchange, str]]: ...


@frozen
class Timer:
    """What time it is, and how to wait."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


async def drive(
    chats: Iterable[Chat], pacing: Pacing, send: Send, timer: Timer
) -> tuple[Exchange, ...]:
    """All chats, each to its last turn or first failure. In order of chat and turn."""
    found: list[Exchange] = []
    if isinstance(pacing, Poisson):
        await _arrive(chats, pacing, send, timer, found)
    else:
        await _take_turns(chats, pacing, send, timer, found)
    return tuple(sorted(found, key=lambda each: (each.chat, each.turn)))


async def _arrive(
    chats: Iterable[Chat], pacing: Poisson, send: Send, timer: Timer, found: list[Exchange]
) -> None:
    started = timer.clock()
    async with asyncio.TaskGroup() as group:
        for chat, after in zip(chats, pacing.arrivals(), strict=False):
            due = started + after
            await timer.sleep(max(0.0, due - timer.clock()))
            group.create_task(_talk(chat, due, send, timer, found))


async def _take_turns(
    chats: Iterable[Chat], pacing: Concurrent, send: Send, timer: Timer, found: list[Exchange]
) -> None:
    waiting = iter(chats)

    async def work() -> None:
        for chat in waiting:
            await _talk(chat, timer.clock(), send, timer, found)

    async with asyncio.TaskGroup() as group:
        for _ in itertools.repeat(None, pacing.chats):
            group.create_task(work())


async def _talk(chat: Chat, due: float, send: Send, timer: Timer, found: list[Exchange]) -> None:
    """A turn is due when the one before it was answered."""
    messages: list[Message] = [{"role": "system", "content": chat.system}]
    for turn, text in enumerate(chat.turns):
        messages.append({"role": "user", "content": text})
        outcome, answer = await send(messages, Place(chat.index, turn, due))
        found.append(outcome)
        if outcome.failure is not None:
            return
        messages.append({"role": "assistant", "content": answer})
        due = timer.clock()
