"""TokenStream: one request's text as it comes. A public name of the Python API."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import TracebackType

from edgeserve.engine.output import (
    EngineEvent,
    PromptRead,
    RequestEmbedded,
    RequestFailed,
    RequestFinished,
    RequestProgress,
)
from edgeserve.engine.shared_engine import SharedEngine
from edgeserve.types import RequestOutput, TokenChunk


class TokenStream(Iterator[TokenChunk]):
    """The pieces of one request as they come. `output` is the whole, once the stream has ended.

    Closing it, leaving its `with` block or dropping it cancels the request. One thread iterates;
    any may close.
    """

    def __init__(self, engine: SharedEngine, request_id: str) -> None:
        self._engine = engine
        self._request_id = request_id
        self._ready: deque[EngineEvent] = deque()
        self._ended = False
        self.output: RequestOutput | None = None

    def __enter__(self) -> TokenStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __next__(self) -> TokenChunk:
        while not self._ended:
            if not self._ready:
                self._ready.extend(self._engine.events_of(self._request_id))
                continue  # it may have been closed meanwhile
            event = self._ready.popleft()
            match event:
                case RequestProgress():
                    return event.chunk
                case PromptRead():
                    pass
                case RequestFinished():
                    self.output = event.output
                    self.close()
                case RequestFailed():
                    self.close()
                    raise event.error
                case RequestEmbedded():
                    raise AssertionError("a stream asks for text")
        raise StopIteration

    def close(self) -> None:
        """Ends the stream; a request that is still running is cancelled. Twice is fine."""
        if not self._ended:
            self._ended = True
            self._engine.forget(self._request_id)

    def __del__(self) -> None:
        self.close()
