"""The program behind the socket, and its end: it answers while the model still loads."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import FrameType
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from edgeserve.async_llm import AsyncLLM
from edgeserve.errors import EdgeServeError
from edgeserve.server.address import Listening
from edgeserve.server.connections import HEADER_BYTES, Connection, ConnectionLimits
from edgeserve.server.many_models import ManyModels
from edgeserve.server.models import OneModel
from edgeserve.server.preparations import Preparations

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TICKS_A_LOOK = 10
"""uvicorn ticks ten times a second."""
_ENDING_LOOK_SECONDS = 0.05
_CUT_SECONDS = 0.7
"""What answers get, when their time is up, to say that they were cut."""
_SWITCH_SECONDS = 0.0005
"""How long the engine's thread may keep the interpreter while an answer waits to be sent."""


class _Server(uvicorn.Server):
    """With limits on connections, and an end in which each answer that is cut says so. uvicorn's
    own raises the signal again when it has ended, and what follows is never done."""

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_A_LOOK == 0:
            now = asyncio.get_running_loop().time()
            # Of other protocols there are types only where their libraries are installed.
            connections = cast("set[object]", self.server_state.connections)
            for connection in tuple(connections):
                if isinstance(connection, Connection):
                    connection.look(now)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's own does not wait for what it cancels, and a second SIGINT cancels nothing."""
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in tuple(cast("set[Connection]", self.server_state.connections)):
            connection.shutdown()
        loop = asyncio.get_running_loop()
        end = loop.time() + (self.config.timeout_graceful_shutdown or 0)
        while self._is_busy and not self.force_exit and loop.time() < end:
            await asyncio.sleep(_ENDING_LOOK_SECONDS)
        answers = tuple(self.server_state.tasks)
        for answer in answers:
            answer.cancel()
        if answers:
            await asyncio.wait(answers, timeout=_CUT_SECONDS)

    @property
    def _is_busy(self) -> bool:
        return bool(self.server_state.connections or self.server_state.tasks)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  uvicorn's
        """The second signal, of either kind, waits for no answer any more."""
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        is_main = threading.current_thread() is threading.main_thread()
        for number in _SIGNALS if is_main else ():
            signal.signal(number, self.handle_exit)
        try:
            yield
        finally:
            for number in _SIGNALS if is_main else ():
                signal.signal(number, before[number])


def make_server(
    app: ASGIApp,
    listening: Listening,
    limits: ConnectionLimits = ConnectionLimits(),  # noqa: B008  frozen
) -> uvicorn.Server:
    """What `serve` runs; its `should_exit` ends it."""
    return _Server(_config(app, listening, limits))


async def serve(
    server: uvicorn.Server,
    bound: socket.socket,
    model: OneModel,
    loading: Awaitable[AsyncLLM],
    on_ready: Callable[[AsyncLLM], None],
) -> None:
    """Until it is told to end (SIGINT, SIGTERM). Raises what loading raised."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    preparations = Preparations(asyncio.get_running_loop())

    def arrived(llm: AsyncLLM) -> None:
        preparations.plan(model.name, llm.model.constraints.prepare, partial(_is_busy, llm))
        on_ready(llm)

    arriving = asyncio.ensure_future(_arrive(model, loading, arrived, server))
    try:
        await server.serve(sockets=[bound])
    finally:
        if not arriving.done():
            arriving.cancel()
        llm = (await asyncio.gather(arriving, return_exceptions=True))[0]
        if isinstance(llm, AsyncLLM):
            await preparations.settle(model.name)
            await llm.close()
    if isinstance(llm, Exception):
        raise llm


async def serve_many(server: uvicorn.Server, bound: socket.socket, models: ManyModels) -> None:
    """The same with models that load when they are asked for. Closes them."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        await server.serve(sockets=[bound])
    finally:
        await models.close()


def _is_busy(llm: AsyncLLM) -> bool:
    load = llm.stats.load
    return load.num_running + load.num_waiting > 0


async def _arrive(
    model: OneModel,
    loading: Awaitable[AsyncLLM],
    on_ready: Callable[[AsyncLLM], None],
    server: uvicorn.Server,
) -> AsyncLLM:
    try:
        llm = await loading
    except Exception as error:
        model.failure = error if isinstance(error, EdgeServeError) else None
        server.should_exit = True
        raise
    model.arrived(llm)
    on_ready(llm)
    return llm


def _config(app: ASGIApp, listening: Listening, limits: ConnectionLimits) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", partial(Connection, limits)),  # called, never looked at
        h11_max_incomplete_event_size=HEADER_BYTES,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        date_header=True,
        ws="none",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=listening.shutdown_seconds,
        ssl_certfile=listening.ssl_certfile,
        ssl_keyfile=listening.ssl_keyfile,
    )
