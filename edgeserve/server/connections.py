"""What a connection may cost that asks for nothing: uvicorn's protocol, with bounds.

uvicorn itself waits for ever for headers, and for a client to read what was its last answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any, cast

import h11
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle

from edgeserve.frozen import frozen
from edgeserve.server.errors import Problem, ServerEndingError, openai_body, problem_of

HEADER_BYTES = 64 << 10
"""The most that a request's first line and headers may have."""
_VERSIONS = ("1.0", "1.1")
_SHOWN = 200


@frozen
class ConnectionLimits:
    """How many there may be at once, idle ones too; and how long, in seconds, a request's headers
    may take (or the rest of a body that was answered already), and a client to take in the last
    answer before its connection is cut."""

    max_connections: int = 512
    headers_seconds: float = 30.0
    leaving_seconds: float = 5.0


class Connection(H11Protocol):
    """One client. `look` is to be called about once a second."""

    def __init__(self, limits: ConnectionLimits, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._application = self.app
        self.app = cast("Any", self._answer)
        self._limits = limits
        self._silent_since: float | None = None
        self._leaving_since: float | None = None
        self._refused = False

    @property
    def _asks_nothing(self) -> bool:
        """Whether no answer is under way: none was begun, or the last is complete."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    @property
    def _owes(self) -> bool:
        """Whether the rest of something is awaited that was begun: a connection, headers, or a body
        of which nobody needs the rest. One that rests between requests owes nothing."""
        rests = self.timeout_keep_alive_task is not None and not self.conn.trailing_data[0]
        return self._asks_nothing and not rests

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._silent_since = self.loop.time()
        others = [each for each in self._others() if not each.transport.is_closing()]
        if len(others) < self._limits.max_connections:
            return
        idle = [each for each in others if each._asks_nothing]
        if idle:
            min(idle, key=lambda each: each._silent_since or 0.0).shutdown()
        else:
            most = f"{self._limits.max_connections} connections are open, as many as there may be"
            self._refuse(Problem(503, f"{most}; come back later", "server_error"))

    def _others(self) -> Iterable[Connection]:
        return (
            each for each in self.connections if isinstance(each, Connection) and each is not self
        )

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if not self._asks_nothing:
            self._silent_since = None

    def on_response_complete(self) -> None:
        self._silent_since = self.loop.time()
        super().on_response_complete()

    def look(self, now: float) -> None:
        """Ends what took too long."""
        if self._refused or self.transport.is_closing():
            if self._leaving_since is None:
                self._leaving_since = now
            elif now - self._leaving_since > self._limits.leaving_seconds:
                self.transport.abort()
        elif self._owes:
            since = now if self._silent_since is None else self._silent_since
            if now - since > self._limits.headers_seconds:
                self._give_up()

    def _give_up(self) -> None:
        if self.conn.trailing_data[0] and self.conn.our_state is h11.IDLE:
            most = f"{self._limits.headers_seconds:g} seconds"
            message = f"the request's headers did not arrive within {most}"
            self._refuse(Problem(408, message, code="request_timeout"))
        else:
            self.shutdown()

    def shutdown(self) -> None:
        if self._refused:
            self.transport.abort()
        elif self._asks_nothing and self.conn.our_state is h11.ERROR:
            self.transport.close()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """For what is no HTTP. Called while h11's error, which says more, is being handled."""
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        why = str(error).replace("bytearray", "")[:_SHOWN] or msg
        self._refuse(Problem(status, f"the request is no HTTP that is understood here: {why}"))

    def _refuse(self, problem: Problem) -> None:
        """Answers and ends the connection, in an order in which the answer arrives: closing at
        once, with bytes unread, would reset the connection and take the answer with it."""
        self._refused = True
        if not self._asks_nothing:  # whoever answers the request that went wrong can stop
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # an answer is under way or complete; there cannot be another
            return
        self.transport.write(self._bytes_of(problem))
        try:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            else:
                self.transport.close()
        except OSError:  # it was reset meanwhile
            self.transport.abort()

    def _bytes_of(self, problem: Problem) -> bytes:
        body = openai_body(problem)
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        response = h11.Response(
            status_code=problem.status, headers=headers, reason=STATUS_PHRASES[problem.status]
        )
        sent = [response, h11.Data(data=body), h11.EndOfMessage()]
        return b"".join(self.conn.send(event) or b"" for event in sent)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application's answer, or a refusal of what h11 lets pass. When the server ends, and
        its time is up, what still runs is cancelled; uvicorn would log that as an error of ours."""
        problem = _problem_of(scope)
        application = self._application if problem is None else _closing(problem)
        try:
            await application(cast("Any", scope), cast("Any", receive), cast("Any", send))
        except asyncio.CancelledError:
            if not self.cycle.response_started:
                await _closing(problem_of(ServerEndingError()))(scope, receive, send)
            else:
                self.cycle.disconnected = True
                self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: who offers HTTP/2 (curl --http2 does) is answered by HTTP/1.1, as it may be."""


def _problem_of(scope: Scope) -> Problem | None:
    if scope["http_version"] not in _VERSIONS:
        return Problem(505, f"HTTP/{scope['http_version']} is not spoken here, but HTTP/1.1")
    sizes = (len(name) + len(value) for name, value in scope["headers"])
    if sum(sizes, len(scope["raw_path"])) + len(scope["query_string"]) > HEADER_BYTES:
        return Problem(431, f"the request's headers are longer than {HEADER_BYTES:,} bytes")
    return None


def _closing(problem: Problem) -> Response:
    headers = {"connection": "close"}
    return Response(openai_body(problem), problem.status, headers, "application/json")
