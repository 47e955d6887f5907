"""The socket, the program behind it, and its end: listens first, while the model still loads."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from edgeserve.async_llm import AsyncLLM
from edgeserve.errors import EdgeServeError, InvalidRequestError
from edgeserve.frozen import frozen
from edgeserve.server.models import OneModel

_BACKLOG = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SWITCH_SECONDS = 0.0005
"""How long the engine's thread may keep the interpreter while an answer waits to be sent."""


@frozen
class Listening:
    """Where, and how an end is made of it. `port` 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 8080
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    shutdown_seconds: int = 10
    log_level: str = "warning"


def bind(listening: Listening) -> socket.socket:
    """Raises InvalidRequestError where the address is taken, or nobody's."""
    try:
        found = socket.getaddrinfo(
            listening.host, listening.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
    except OSError as error:
        where = f"{listening.host}:{listening.port}"
        allowed = f"an address of this machine with a free port ({error.strerror or error})"
        raise InvalidRequestError("--host and --port", where, allowed) from error
    return bound


def base_url(listening: Listening, bound: socket.socket) -> str:
    scheme = "https" if listening.ssl_certfile else "http"
    host = listening.host
    if host in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{bound.getsockname()[1]}"


class _Server(uvicorn.Server):
    """uvicorn's own raises the signal again when it has ended, and what follows is never done."""

    @contextmanager
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


def make_server(app: ASGIApp, listening: Listening) -> uvicorn.Server:
    """What `serve` runs; its `should_exit` ends it."""
    return _Server(_config(app, listening))


async def serve(
    server: uvicorn.Server,
    bound: socket.socket,
    model: OneModel,
    load: Callable[[], Awaitable[AsyncLLM]],
    on_ready: Callable[[AsyncLLM], None],
) -> None:
    """Until it is told to end (SIGINT, SIGTERM). Raises what loading raised."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    loading = asyncio.ensure_future(_load(model, load, on_ready, server))
    try:
        await server.serve(sockets=[bound])
    finally:
        if not loading.done():
            loading.cancel()
        llm = (await asyncio.gather(loading, return_exceptions=True))[0]
        if isinstance(llm, AsyncLLM):
            await llm.close()
    if isinstance(llm, EdgeServeError):
        raise llm


async def _load(
    model: OneModel,
    load: Callable[[], Awaitable[AsyncLLM]],
    on_ready: Callable[[AsyncLLM], None],
    server: uvicorn.Server,
) -> AsyncLLM:
    try:
        llm = await load()
    except EdgeServeError as error:
        model.failure = error
        server.should_exit = True
        raise
    model.arrived(llm)
    on_ready(llm)
    return llm


def _config(app: ASGIApp, listening: Listening) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        log_level=listening.log_level,
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
