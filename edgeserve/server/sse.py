"""Answers that stream: frames, signs of life in silence, and a client that goes away.

Knows ASGI; nothing of what is in a frame.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from edgeserve.frozen import frozen

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"

_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}

_CUT_S = 0.5
"""For the last frames of a stream that is cut: its client may read nothing."""

T = TypeVar("T")


class ClientGoneError(Exception):
    """Nobody is there any more to answer to."""


@frozen
class Pings:
    """After how many seconds of silence the first ping is sent, and the others; and what it is.

    A client that lets what was sent lie for `stalled_s` is taken for gone.
    """

    first_s: float = 5.0
    next_s: float = 10.0
    stalled_s: float = 300.0
    frame: bytes = PING


def data_frame(value: object) -> bytes:
    """An event of JSON."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def named_frame(event: str, value: object) -> bytes:
    """The same, with a name."""
    return b"event: " + event.encode() + b"\n" + data_frame(value)


def comment_frames(facts: Mapping[str, str]) -> Sequence[bytes]:
    """What clients pass over, and people see. No value may have a line's end."""
    return [f": {name}: {value}\n\n".encode() for name, value in facts.items()]


class EventStream:
    """An ASGI response of frames. However it ends, `frames` is closed and `closing` awaited. When
    it is cancelled, so is what `frames` waits for, and the frames it still has are sent."""

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        headers: Mapping[str, str],
        closing: Callable[[], Awaitable[object]],
        pings: Pings = Pings(),  # noqa: B008  frozen
    ) -> None:
        self._frames = frames
        self._headers = {**_HEADERS, **headers}
        self._closing = closing
        self._pings = pings
        self._silent_since = 0.0
        self._sending_since: float | None = None
        self._ready = bytearray()
        self._came = asyncio.Event()
        self._collecting: asyncio.Future[None] | None = None

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.ensure_future(self._write(send))
        watching = asyncio.ensure_future(client_gone(receive))
        stalling = asyncio.ensure_future(self._stall())
        tasks = (writing, watching, stalling)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                await writing
        except asyncio.CancelledError:  # the server ends: `frames` says so, and the stream is whole
            if self._collecting is not None:
                self._collecting.cancel()
                await asyncio.wait(tasks, timeout=_CUT_S, return_when=asyncio.FIRST_COMPLETED)
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._closing()

    async def _write(self, send: Send) -> None:
        headers = [(name.encode(), value.encode()) for name, value in self._headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        loop = asyncio.get_running_loop()
        self._silent_since = loop.time()
        pinging = asyncio.ensure_future(self._ping(send))
        self._collecting = collecting = asyncio.ensure_future(self._collect())
        try:
            while frames := await self._collected(collecting):
                self._silent_since = self._sending_since = loop.time()
                await send({"type": "http.response.body", "body": frames, "more_body": True})
                self._sending_since = None
        finally:
            pinging.cancel()
            collecting.cancel()
            await asyncio.gather(pinging, collecting, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _collect(self) -> None:
        """Frames as they come. What is there at once is one piece to the socket: behind many
        streams, a call for each frame would be what they wait for."""
        try:
            async for frame in self._frames:
                self._ready += frame
                self._came.set()
        finally:
            self._came.set()

    async def _collected(self, collecting: asyncio.Future[None]) -> bytes:
        """What came since it was last asked; empty at the end. Raises what `frames` raises."""
        if not collecting.done():
            await self._came.wait()
            self._came.clear()
        frames = bytes(self._ready)
        self._ready.clear()
        if not frames:
            await collecting
        return frames

    async def _stall(self) -> None:
        """Returns when the client has read nothing for so long that it never will."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._pings.stalled_s / 4)
            since = self._sending_since
            if since is not None and loop.time() - since > self._pings.stalled_s:
                return

    async def _ping(self, send: Send) -> None:
        """Sends a sign of life whenever nothing else was sent for long."""
        loop = asyncio.get_running_loop()
        wait = self._pings.first_s
        while True:
            since = self._silent_since
            await asyncio.sleep(since + wait - loop.time())
            if self._silent_since != since:
                wait = self._pings.first_s
                continue
            self._silent_since = loop.time()
            await send({"type": "http.response.body", "body": self._pings.frame, "more_body": True})
            wait = self._pings.next_s


async def client_gone(receive: Receive) -> None:
    """Returns when the client has gone away. What it still sends is nobody's."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """What `work` comes to; it is cancelled, and ClientGoneError raised, if the client leaves."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(client_gone(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError
        return await working
    finally:
        for task in (working, watching):
            task.cancel()
        with contextlib.suppress(BaseException):
            await asyncio.gather(working, watching, return_exceptions=True)
