"""AsyncTokenStream: one request's text as it comes, for asyncio. Public in the Python API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType

from edgeserve.engine.async_engine import AsyncEngine, Events
from edgeserve.engine.live_request import Request
from edgeserve.engine.output import (
    PromptRead,
    RequestEmbedded,
    RequestFailed,
    RequestFinished,
    RequestProgress,
)
from edgeserve.errors import AbortedError
from edgeserve.types import RequestOutput, TokenChunk


class AsyncTokenStream(AsyncIterator[TokenChunk]):
    """The pieces of one request as they come. `output` is the whole, once the stream has ended.

    Closing it, leaving its `async with` block, dropping it, or cancelling the task that waits for
    a piece cancels the request. It belongs to the event loop that starts it.
    """

    def __init__(self, engine: AsyncEngine, prepare: Callable[[], Request]) -> None:
        """`prepare` makes the request; it runs beside the event loop, for a prompt may be long."""
        self._engine = engine
        self._prepare = prepare
        self._starting = asyncio.Lock()
        self._request_id: str | None = None
        self._events: Events = asyncio.Queue()
        self._ended = False
        self.output: RequestOutput | None = None

    @classmethod
    def opened(cls, engine: AsyncEngine, request: Request) -> AsyncTokenStream:
        """The stream of a request that is queued here and now."""
        stream = cls(engine, lambda: request)
        stream._ended = True  # until it is queued: there would be nothing to cancel
        stream._events = engine.submit(request, wants_progress=True)
        stream._request_id = request.request_id
        stream._ended = False
        return stream

    async def start(self) -> None:
        """Queues the request, so that its errors come before its first piece. Twice is fine.

        Raises what `LLM.stream` does, and QueueFullError.
        """
        async with self._starting:
            if self._request_id is not None or self._ended:
                return
            try:
                request = await asyncio.to_thread(self._prepare)
                if not self._ended:  # it may have been closed meanwhile
                    self._events = self._engine.submit(request, wants_progress=True)
                    self._request_id = request.request_id
            except BaseException:
                self._ended = True
                raise

    async def __aenter__(self) -> AsyncTokenStream:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def __anext__(self) -> TokenChunk:
        while (piece := await self._next_piece()) is not None:
            if isinstance(piece, TokenChunk):
                return piece
        raise StopAsyncIteration

    async def pieces(self) -> AsyncIterator[TokenChunk | PromptRead]:
        """The same, and how far the prompt is read, where the request wants to know."""
        while (piece := await self._next_piece()) is not None:
            yield piece

    async def _next_piece(self) -> TokenChunk | PromptRead | None:
        """None at the end."""
        if self._request_id is None:
            await self.start()
        while not self._ended:
            try:
                event = await self._events.get()
            except BaseException:  # the task was cancelled, or dropped
                self._cancel()
                raise
            if self._ended:  # closed by another task meanwhile
                break
            match event:
                case RequestProgress():
                    return event.chunk
                case PromptRead():
                    return event
                case RequestFinished():
                    self._ended = True
                    self.output = event.output
                case RequestFailed():
                    self._ended = True
                    raise event.error
                case RequestEmbedded():
                    raise AssertionError("a stream asks for text")
        return None

    async def aclose(self) -> None:
        """Ends the stream; a request that is still running is cancelled. Twice is fine."""
        self._cancel()
        if self._request_id is not None:  # wakes a task that waits for a piece
            self._events.put_nowait(RequestFailed(self._request_id, AbortedError("the stream")))

    def _cancel(self) -> None:
        if not self._ended:
            self._ended = True
            if self._request_id is not None:
                self._engine.forget(self._request_id)

    def __del__(self) -> None:
        self._cancel()
