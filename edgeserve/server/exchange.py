"""One request to a chat surface, from body to last byte: the same for OpenAI, Responses, Anthropic.

A Surface reads a body and writes frames or a whole; order, errors, headers and clients that go
away are handled here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from edgeserve.frozen import frozen
from edgeserve.server.cache_miss import miss_in_words
from edgeserve.server.chat_turn import ChatTurn, open_turn
from edgeserve.server.context import ServerContext
from edgeserve.server.errors import (
    ErrorShape,
    Problem,
    ServerEndingError,
    cut_is_error,
    openai_body,
    problem_of,
)
from edgeserve.server.fields import Fields
from edgeserve.server.limits import read_body
from edgeserve.server.models import Served
from edgeserve.server.request_log import note, note_output, say_miss
from edgeserve.server.sse import ClientGoneError, EventStream, comment_frames, while_connected
from edgeserve.server.turn import Answer, ChatTask, Turn, whole_answer

Answered = TypeVar("Answered", bound=Response | EventStream)

_GONE = Response(status_code=499)
"""For a client that is not there any more; nobody reads it."""


class Asked(Protocol):
    """A body that was read."""

    @property
    def task(self) -> ChatTask: ...

    @property
    def streams(self) -> bool: ...


class Surface(Protocol):
    """A chat API's wire format. `ping` is its sign of life."""

    ping: bytes

    def read(self, body: Fields, served: Served) -> Asked:
        """What is asked. Raises InvalidRequestError."""
        ...

    def frames(self, asked: Asked, served: Served, turn: Turn) -> AsyncIterator[bytes]:
        """The turn as a stream, to its end. Errors of the turn may pass."""
        ...

    def whole(self, asked: Asked, served: Served, answer: Answer) -> object:
        """The turn as one JSON value."""
        ...

    def error_body(self, problem: Problem) -> bytes: ...

    def error_frames(self, problem: Problem) -> bytes:
        """An error after the headers, and what closes the stream."""
        ...


class Exchange:
    """Answers a surface's requests. `answer` is an endpoint for a route."""

    def __init__(self, server: ServerContext, surface: Surface) -> None:
        self._server = server
        self._surface = surface

    async def answer(self, request: Request) -> Response | EventStream:
        return await answered(self._answer(request), self._surface.error_body)

    async def _answer(self, request: Request) -> Response | EventStream:
        body = await read_body(request, self._server.limits)
        async with AsyncExitStack() as stack:
            taken = await stack.enter_async_context(AsyncExitStack())
            opening = asyncio.ensure_future(self._open(request, body, taken))
            stack.push_async_callback(_end, opening)
            streams = body.flag("stream") or False
            patience = self._server.pings.first_s if streams else None
            await while_connected(request.receive, asyncio.wait((opening,), timeout=patience))
            headers: Mapping[str, str] = {}
            is_late = not opening.done()
            if not is_late:
                headers = notes(body, opening.result().turn)
            if streams:  # also when it waits for its model for long: it is told that we live
                pings = replace(self._server.pings, frame=self._surface.ping)
                frames = self._frames(opening, body if is_late else None)
                return EventStream(frames, headers, stack.pop_all().aclose, pings)
            opened = opening.result()
            answer = await while_connected(request.receive, whole_answer(opened.turn))
            value = self._surface.whole(opened.asked, opened.served, answer)
            return json_response(value, headers)

    async def _open(self, request: Request, body: Fields, taken: AsyncExitStack) -> _Opened:
        """All that may refuse a request. `taken` gives back what it takes."""
        served = await taken.enter_async_context(self._server.registry.use(body.text("model")))
        asked = self._surface.read(body, served)
        turn = await open_turn(self._server, served, asked.task)
        taken.push_async_callback(turn.aclose)
        note(request, model=served.name, stream=asked.streams)
        taken.callback(lambda: _note_end(request, turn, asked.task, served))
        return _Opened(asked, served, turn)

    async def _frames(
        self, opening: asyncio.Future[_Opened], late: Fields | None
    ) -> AsyncIterator[bytes]:
        """Of a `late` body that was opened after the headers, what they would say is a comment."""
        try:
            with cut_is_error():
                opened = await opening
            for said in () if late is None else comment_frames(notes(late, opened.turn)):
                yield said
            async for frame in self._surface.frames(opened.asked, opened.served, opened.turn):
                yield frame
        except Exception as error:  # the headers are out: all that is left is to say it in a frame
            yield self._surface.error_frames(problem_of(error))


@frozen
class _Opened:
    """A request that nothing is wrong with, as its surface read it, and its turn."""

    asked: Asked
    served: Served
    turn: ChatTurn


def _note_end(request: Request, turn: ChatTurn, task: ChatTask, served: Served) -> None:
    """What the log says of an answer, and of why its prompt was not in the cache."""
    note_output(request, turn.output)
    text_of = served.llm.requests.detokenize
    say_miss(request, miss_in_words(turn.output, task.messages, text_of))


async def _end(opening: asyncio.Future[_Opened]) -> None:
    """Before what it took is given back."""
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)


def notes(body: Fields, turn: Turn) -> Mapping[str, str]:
    """The headers that say what was ignored, changed and loosened."""
    found = {
        "x-edgeserve-ignored": body.unread(),
        "x-edgeserve-adjusted": turn.adjusted,
        "x-edgeserve-relaxed": turn.relaxed,
    }
    return {name: header_text(", ".join(said)) for name, said in found.items() if said}


def header_text(text: str, most: int = 2000) -> str:
    """A text as a header may carry it: printable ASCII, no space around it, not too much of it."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text).strip()
    return plain if len(plain) <= most else f"{plain[:most]}..."


def json_response(value: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), headers=headers, media_type="application/json")


async def answered(
    answer: Awaitable[Answered],
    error_body: ErrorShape = openai_body,
    told: Callable[[BaseException], Problem] = problem_of,
) -> Answered | Response:
    """The boundary of every route: whatever broke, the client gets a body of what it is `told`."""
    try:
        return await answer
    except ClientGoneError:
        return _GONE
    except asyncio.CancelledError:  # the server ends
        return error_response(told(ServerEndingError()), error_body)
    except Exception as error:
        return error_response(told(error), error_body)


def error_response(problem: Problem, body: ErrorShape = openai_body) -> Response:
    return Response(body(problem), problem.status, problem.headers, "application/json")
