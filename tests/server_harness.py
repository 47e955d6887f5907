"""A server in this process: the whole application over a tiny model, asked without a socket."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edgeserve import AsyncLLM
from edgeserve.server.address import Listening, base_url, bind
from edgeserve.server.app import build_app
from edgeserve.server.connections import ConnectionLimits
from edgeserve.server.context import ServerContext
from edgeserve.server.listener import make_server, serve
from edgeserve.server.models import OneModel

SECONDS = 60
USER: list[dict[str, Any]] = [{"role": "user", "content": "the inn"}]

Test = Callable[[httpx.AsyncClient, AsyncLLM], Awaitable[None]]


@asynccontextmanager
async def client_of(llm: AsyncLLM | None, **context: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server with this model, named "tiny"; without one it is loading. `layer` among
    the context is one around the application."""
    model = OneModel("tiny", ("gpt-*",), created=1)
    if llm is not None:
        model.arrived(llm)
    layer = context.pop("layer", lambda app: app)
    app = layer(build_app(replace(ServerContext(model), **context)))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", timeout=SECONDS
    ) as client:
        yield client


def with_server(path: Path | str, test: Test, *, context: Any = None, **options: Any) -> None:
    """Runs a test in a loop of its own; afterwards the engine has no work, and no block is held."""

    async def bounded() -> None:
        async with await AsyncLLM.create(str(path), num_threads=1, **options) as llm:
            async with client_of(llm, **(context or {})) as client:
                await asyncio.wait_for(test(client, llm), SECONDS)
            await llm.generate("a", max_tokens=1)  # what was cancelled before is gone now
            assert not llm.model.engine.has_work
            llm.model.engine.check()

    asyncio.run(bounded())


class Overheard:
    """An ASGI layer that tells a test what is sent, while it is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._num_bodies = 0
        self._more = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            self._num_bodies += message["type"] == "http.response.body"
            self._more.set()
            await send(message)

        await self._app(scope, receive, sending)

    async def bodies(self, count: int) -> None:
        """Returns when so many pieces of bodies have been sent."""
        while self._num_bodies < count:
            self._more.clear()
            await self._more.wait()


async def settled() -> None:
    """When every task of the loop has done what it can do by itself."""
    for _ in range(50):
        await asyncio.sleep(0)


def events_of(body: str) -> list[Any]:
    """The JSON of a stream's events; "[DONE]" stays text."""
    events: list[Any] = []
    for block in body.split("\n\n"):
        if block.startswith("data: "):
            data = block.removeprefix("data: ")
            events.append(data if data == "[DONE]" else json.loads(data))
    return events


def text_of(events: list[Any], index: int = 0) -> str:
    """What the deltas of a choice come to."""
    choices = [c for e in events if e != "[DONE]" for c in e.get("choices", ())]
    return "".join(c["delta"].get("content") or "" for c in choices if c["index"] == index)


@contextmanager
def real_server(path: Path | str, **options: Any) -> Iterator[tuple[str, AsyncLLM]]:
    """(base URL, model) of a server on a free port, on a thread of its own. `context` among the
    options is ServerContext's, `limits` are its connections'."""
    context = options.pop("context", {})
    limits = options.pop("limits", ConnectionLimits())
    listening = Listening(port=0, shutdown_seconds=1)
    bound = bind(listening)
    model = OneModel("tiny", ("gpt-*",), created=1)
    app = build_app(replace(ServerContext(model), **context))
    server = make_server(app, listening, limits)
    loaded: queue.SimpleQueue[AsyncLLM] = queue.SimpleQueue()

    async def run() -> None:
        loading = AsyncLLM.create(str(path), num_threads=1, **options)
        await serve(server, bound, model, loading, loaded.put)

    serving = threading.Thread(target=lambda: asyncio.run(run()))
    serving.start()
    try:
        yield base_url(listening, bound), loaded.get(timeout=SECONDS)
    finally:
        server.should_exit = True
        serving.join(SECONDS)
    assert not serving.is_alive()
