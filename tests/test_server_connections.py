"""Connections that cost without asking: they end in time, and at no cost to those that ask."""

from __future__ import annotations

import asyncio
import errno
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from edgeserve import AsyncLLM
from edgeserve.server.connections import Connection, ConnectionLimits
from edgeserve.server.limits import BodyLimits
from edgeserve.server.sse import Pings

from .raw_http import connected, get, post, reset, statuses, until, until_closed, wait_for
from .serve_program import serving
from .server_harness import real_server, settled
from .tiny_models import write_tiny_model

LIMITS = ConnectionLimits(max_connections=3, headers_seconds=30, leaving_seconds=5)
LONG: dict[str, Any] = {
    "prompt": "the inn",
    "stream": True,
    "ignore_eos": True,
    "logprobs": 20,
    "max_tokens": 20_000,
}
HALF = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=20_000)


# --- by a clock of its own -----------------------------------------------------------------------


class Wire(asyncio.Transport):
    """A transport that keeps what is written, and whose end the test decides."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended: str | None = None
        self.was_reset = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self.was_reset:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    def is_closing(self) -> bool:
        return self.ended is not None

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Listener:
    """Makes connections to an application that answers when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.may_answer = asyncio.Event()
        self._config = uvicorn.Config(self._answer, interface="asgi3", ws="none", log_config=None)
        self._config.load()
        self._state = ServerState()
        self._loop = asyncio.get_running_loop()
        self._loop.time = lambda: self.now  # type: ignore[method-assign]

    async def _answer(self, scope: Scope, _: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def connect(self) -> tuple[Connection, Wire]:
        made = Connection(LIMITS, self._config, self._state, {}, _loop=self._loop)
        wire = Wire()
        made.connection_made(wire)
        return made, wire

    def look(self, after: float) -> None:
        self.now += after
        for each in tuple(self._state.connections):
            assert isinstance(each, Connection)
            each.look(self.now)


def listening(test: Any) -> None:
    async def run() -> None:
        listener = Listener()
        await test(listener)
        listener.may_answer.set()
        await settled()

    asyncio.run(run())


def test_one_that_never_asks_is_closed_without_a_word() -> None:
    async def test(listener: Listener) -> None:
        _, wire = listener.connect()
        listener.look(after=30)
        assert wire.ended is None
        listener.look(after=1)
        assert (wire.ended, wire.written) == ("closed", b"")

    listening(test)


def test_headers_that_drip_are_too_late_all_the_same() -> None:
    async def test(listener: Listener) -> None:
        made, wire = listener.connect()
        for byte in HALF[:30]:
            made.data_received(bytes([byte]))
            assert not wire.written
            listener.look(after=1)
        listener.look(after=1)
        assert statuses(wire.written) == [408]
        assert b"within 30 seconds" in wire.written
        made.data_received(HALF[30:] + b"\r\n")  # too late: it is not read any more
        listener.look(after=0)
        listener.look(after=5)
        assert wire.ended is None  # so that the answer arrives
        listener.look(after=1)
        assert wire.ended == "aborted"

    listening(test)


def test_nonsense_of_a_client_that_is_not_there_any_more_harms_nobody() -> None:
    """Also behind a request: then it is found while that one's answer is completed."""

    async def test(listener: Listener) -> None:
        for said in (b"nonsense\r\n\r\n", get("/") + b"nonsense\r\n\r\n"):
            made, wire = listener.connect()
            wire.was_reset = True
            made.data_received(said)
            listener.may_answer.set()
            await settled()
            assert wire.ended == "aborted"

    listening(test)


def test_an_answer_may_take_as_long_as_it_takes() -> None:
    async def test(listener: Listener) -> None:
        made, wire = listener.connect()
        made.data_received(get("/"))
        listener.look(after=1000)
        listener.look(after=1000)
        assert wire.ended is None
        listener.may_answer.set()
        await settled()
        assert statuses(wire.written) == [200]

    listening(test)


def test_one_that_was_answered_may_rest_but_not_drip() -> None:
    """Rest it may until uvicorn's keep-alive ends it; the headers of the next have their time."""

    async def test(listener: Listener) -> None:
        listener.may_answer.set()
        made, wire = listener.connect()
        listener.look(after=29)
        made.data_received(get("/"))
        await settled()
        listener.look(after=40)
        assert wire.ended is None
        made.data_received(HALF)
        listener.look(after=0)
        assert wire.ended is None
        made.data_received(b"x")
        listener.look(after=31)
        assert statuses(wire.written) == [200, 408]

    listening(test)


def test_a_body_whose_answer_is_out_may_not_drip_for_ever() -> None:
    async def test(listener: Listener) -> None:
        listener.may_answer.set()
        made, wire = listener.connect()
        made.data_received(HALF + b"Content-Length: 1000000\r\n\r\n")
        await settled()
        assert statuses(wire.written) == [200]
        for _ in range(31):
            made.data_received(b"x")
            listener.look(after=1)
        assert (statuses(wire.written), wire.ended) == ([200], "closed")

    listening(test)


def test_a_client_that_does_not_read_its_last_answer_is_cut() -> None:
    async def test(listener: Listener) -> None:
        listener.may_answer.set()
        made, wire = listener.connect()
        made.data_received(get("/").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        await settled()
        assert wire.ended == "closed"  # and never lost: it does not read
        listener.look(after=1)
        listener.look(after=5)
        assert wire.ended == "closed"
        listener.look(after=1)
        assert wire.ended == "aborted"

    listening(test)


def test_one_too_many_takes_the_place_of_who_rested_longest() -> None:
    async def test(listener: Listener) -> None:
        asking, asking_wire = listener.connect()
        asking.data_received(get("/"))
        wires = []
        for _ in range(4):
            listener.now += 1
            wires.append(listener.connect()[1])
        assert [wire.ended for wire in wires] == ["closed", "closed", None, None]
        assert asking_wire.ended is None

    listening(test)


def test_where_all_are_being_answered_one_too_many_is_told_so() -> None:
    async def test(listener: Listener) -> None:
        for _ in range(3):
            listener.connect()[0].data_received(get("/"))
        _, wire = listener.connect()
        assert statuses(wire.written) == [503]
        assert b"3 connections are open" in wire.written

    listening(test)


# --- over real sockets ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def impatient(path: Path) -> Iterator[tuple[str, AsyncLLM]]:
    """A server with little patience."""
    context = {
        "limits": BodyLimits(max_seconds=0.2),
        "pings": Pings(stalled_s=0.4),
    }
    limits = ConnectionLimits(headers_seconds=0.2, leaving_seconds=0.2)
    with real_server(path, context=context, limits=limits, max_num_seqs=4) as found:
        yield found


def test_requests_that_stop_on_their_way_end_while_others_are_answered(
    impatient: tuple[str, AsyncLLM],
) -> None:
    url = impatient[0]
    ends = {
        b"": [],
        b"GET /hea": [408],
        HALF: [408],
        get("/health") + HALF: [200, 408],
        HALF + b"Content-Length: 9\r\n\r\n{": [408],
        HALF + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{": [408],
    }
    with ExitStack() as stack:
        stopped = [(stack.enter_context(connected(url)), said) for said in ends]
        for connection, said in stopped:
            connection.sendall(said)
        body = {**LONG, "stream": False, "max_tokens": 20}
        assert httpx.post(f"{url}/v1/completions", json=body).status_code == 200
        for connection, said in stopped:
            if said.endswith(b"{"):  # the answer to a body that stops; its connection may rest
                assert statuses(until(connection, b"request_timeout")) == ends[said]
            else:
                assert statuses(until_closed(connection)) == ends[said]


def test_streams_whose_clients_stall_or_drop_leave_nothing(
    impatient: tuple[str, AsyncLLM],
) -> None:
    url, llm = impatient
    engine: Any = llm.model.engine
    short = {**LONG, "max_tokens": 40, "seed": 7}
    with connected(url) as connection:
        connection.sendall(post("/v1/completions", short))
        alone = _pieces(until(connection, b"[DONE]"))
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(url, receive_buffer=4096)) for _ in range(3)]
        for client in clients:
            client.sendall(post("/v1/completions", LONG))
            client.recv(100)
        stalled, dropped, half_closed = clients
        reset(dropped)
        half_closed.shutdown(1)  # SHUT_WR
        until_closed(half_closed)
        with connected(url) as healthy:
            healthy.sendall(post("/v1/completions", short))
            assert _pieces(until(healthy, b"[DONE]")) == alone
        wait_for(lambda: not engine.has_work)  # the stalled one too, though it holds its connection
        until_closed(stalled)
    engine.check()


def _pieces(received: bytes) -> list[bytes]:
    """What is said in a stream, without what differs from one to another."""
    pieces = [part.split(b'"text":')[1] for part in received.split(b"data: ") if b'"text":' in part]
    assert pieces
    return [piece.split(b'"finish_reason"')[0] for piece in pieces]


def test_it_ends_in_time_with_stalled_clients(path: Path, tmp_path: Path) -> None:
    arguments = ("--shutdown-seconds", "1", "--no-disk-cache")
    with serving(path, tmp_path, *arguments) as (program, url), ExitStack() as stack:
        for said in (
            b"",
            HALF,
            get("/health"),
            HALF + b"Content-Length: 9\r\n\r\n{",
            b"nonsense\r\n\r\n",
            post("/v1/completions", LONG),
            post("/v1/completions", {**LONG, "stream": False}),
        ):
            stack.enter_context(connected(url, receive_buffer=4096)).sendall(said)
        streaming = stack.enter_context(connected(url, receive_buffer=4096))
        streaming.sendall(post("/v1/completions", LONG))
        until(streaming, b"data: ")
        began = time.monotonic()
        assert program.end(signal.SIGTERM) == 0
        assert time.monotonic() - began < 10
    assert "Traceback" not in program.said, program.said
