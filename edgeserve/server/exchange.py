"""One request to a chat surface, from body to last byte: the same for OpenAI, Responses, Anthropic.

A Surface reads a body and writes frames or a whole; order, errors, headers and clients that go
away are handled here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from edgeserve.server.chat_turn import open_turn
from edgeserve.server.context import ServerContext
from edgeserve.server.errors import ErrorShape, Problem, openai_body, problem_of
from edgeserve.server.fields import Fields
from edgeserve.server.limits import read_body
from edgeserve.server.models import Served
from edgeserve.server.request_log import note, note_output
from edgeserve.server.sse import ClientGoneError, EventStream, while_connected
from edgeserve.server.turn import Answer, ChatTask, Turn, whole_answer

GONE = Response(status_code=499)
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
        try:
            return await self._answer(request)
        except ClientGoneError:
            return GONE
        except Exception as error:  # the boundary: whatever broke, the client gets a body of it
            return error_response(problem_of(error), self._surface.error_body)

    async def _answer(self, request: Request) -> Response | EventStream:
        body = await read_body(request, self._server.limits)
        async with AsyncExitStack() as stack:
            served = await stack.enter_async_context(self._server.registry.use(body.text("model")))
            asked = self._surface.read(body, served)
            turn = await while_connected(
                request.receive, open_turn(self._server, served, asked.task)
            )
            stack.push_async_callback(turn.aclose)
            note(request, model=served.name, stream=asked.streams)
            stack.callback(lambda: note_output(request, turn.output))
            headers = notes(body, turn)
            if asked.streams:
                pings = replace(self._server.pings, frame=self._surface.ping)
                frames = self._frames(asked, served, turn)
                return EventStream(frames, headers, stack.pop_all().aclose, pings)
            answer = await while_connected(request.receive, whole_answer(turn))
            value = self._surface.whole(asked, served, answer)
            return json_response(value, headers)

    async def _frames(self, asked: Asked, served: Served, turn: Turn) -> AsyncIterator[bytes]:
        try:
            async for frame in self._surface.frames(asked, served, turn):
                yield frame
        except Exception as error:  # the headers are out: all that is left is to say it in a frame
            yield self._surface.error_frames(problem_of(error))


def notes(body: Fields, turn: Turn) -> Mapping[str, str]:
    """The headers that say what was ignored, changed and loosened."""
    found = {
        "x-edgeserve-ignored": body.unread(),
        "x-edgeserve-adjusted": turn.adjusted,
        "x-edgeserve-relaxed": turn.relaxed,
    }
    return {name: header_text(", ".join(said)) for name, said in found.items() if said}


def header_text(text: str, most: int = 2000) -> str:
    """A text as a header may carry it: printable ASCII, and not too much of it."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text)
    return plain if len(plain) <= most else f"{plain[:most]}..."


def json_response(value: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), headers=headers, media_type="application/json")


def error_response(problem: Problem, body: ErrorShape = openai_body) -> Response:
    return Response(body(problem), problem.status, problem.headers, "application/json")
