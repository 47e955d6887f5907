"""One answer of a server: its stream of events, read beside whoever takes them."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Mapping

import httpx

from edgeserve.errors import (
    AnswerBrokenError,
    ContextLengthError,
    EdgeServeError,
    EventTooLongError,
    ServerRefusedError,
    ServerUnreachableError,
)
from edgeserve.event_stream import events
from edgeserve.remote_models import error_message
from edgeserve.tui.client import AnswerEvent
from edgeserve.tui.http_chunks import DONE, ChunkReader

_CONTEXT = (
    re.compile(r"maximum context length is (?P<most>\d+) tokens\D+(?P<asked>\d+) tokens"),
    re.compile(r"\((?P<asked>\d+) tokens\) exceeds the available context size \((?P<most>\d+)"),
)
"""As OpenAI says it, and whoever serves its clients (ours, vLLM); as llama-server does."""
_MOST_ERROR_BYTES = 1 << 20
_MOST_WAITING = 1024
"""Events that nobody has taken yet. Then the server waits."""


class HttpAnswer:
    """An Answer (client.py). `url` ends in `/v1`; an `error` is what the iteration raises."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        body: Mapping[str, object],
        reader: ChunkReader,
        ended: Callable[[HttpAnswer], None],
        error: EdgeServeError | None = None,
    ) -> None:
        self._http = http
        self._url = url
        self._body = body
        self._reader = reader
        self._ended = ended
        self._error = error
        self._waiting: asyncio.Queue[AnswerEvent | EdgeServeError | None]
        self._waiting = asyncio.Queue(_MOST_WAITING)
        self._is_stopped = False

    async def stop(self) -> None:
        self._is_stopped = True
        with contextlib.suppress(asyncio.QueueFull):  # then nobody waits for another
            self._waiting.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[AnswerEvent]:
        if self._error is not None:
            raise self._error
        reading = asyncio.ensure_future(self._read())
        try:
            while True:
                event = await self._waiting.get()
                if self._is_stopped or event is None:
                    break
                if isinstance(event, EdgeServeError):
                    raise event
                yield event
            for piece in self._reader.rest():
                yield piece
            yield self._reader.stopped() if self._is_stopped else self._reader.ended()
        finally:
            reading.cancel()  # which closes the connection: the server drops what it computes
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            self._ended(self)

    async def _read(self) -> None:
        """To the end of the stream, or to an error: the last thing that is put there."""
        end: EdgeServeError | None = None
        try:
            async with self._http.stream(
                "POST", f"{self._url}/chat/completions", json=self._body
            ) as response:
                await self._take(response)
        except EdgeServeError as error:
            end = error
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            end = ServerUnreachableError(self._url, reason)
            if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                end = AnswerBrokenError(self._url, f"the connection was lost ({reason})")
        await self._waiting.put(end)

    async def _take(self, response: httpx.Response) -> None:
        if not response.is_success:
            message = error_message(await _beginning(response))
            for too_long in filter(None, (form.search(message) for form in _CONTEXT)):
                raise ContextLengthError(int(too_long["asked"]), int(too_long["most"]))
            after = response.headers.get("retry-after", "")
            raise ServerRefusedError(self._url, response.status_code, message, after)
        kind = response.headers.get("content-type", "")
        if "text/event-stream" not in kind:
            raise ServerRefusedError(
                self._url, response.status_code, f"{kind or 'nothing'} where a stream was due"
            )
        try:
            async for data in events(response.aiter_bytes()):
                if data == DONE:
                    return
                for event in self._reader.take(data):
                    await self._waiting.put(event)
        except EventTooLongError as error:
            raise AnswerBrokenError(self._url, f"it sent {error}") from None
        except httpx.HTTPError:
            if not self._reader.has_finished:
                raise
        if not self._reader.has_finished:
            raise AnswerBrokenError(self._url, "it ended the stream in the middle")


async def _beginning(response: httpx.Response) -> bytes:
    found = b""
    async for chunk in response.aiter_bytes():
        found += chunk
        if len(found) > _MOST_ERROR_BYTES:
            break
    return found
