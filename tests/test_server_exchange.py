"""Streams whose model is not there at once, and clients that stop reading."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from edgeserve import AsyncLLM
from edgeserve.errors import EdgeServeError, OutOfMemoryError
from edgeserve.server.models import ModelCard, OneModel, Served
from edgeserve.server.sse import EventStream, Pings

from .server_harness import USER, Overheard, client_of, events_of, settled
from .skipping_loop import run_skipping
from .tiny_models import write_tiny_model

SOON = Pings(0.01, 0.01)
ASKED: dict[str, Any] = {"messages": USER, "max_tokens": 4, "seed": 1}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=64)


@dataclass
class SlowModels:
    """A registry whose model comes, or fails to, when it is told. `num_users` hold it."""

    loaded: OneModel
    ready: asyncio.Event
    failure: EdgeServeError | None = None
    num_users: int = 0
    is_ready: bool = True
    heard: Overheard = field(init=False)

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncGenerator[Served]:
        self.num_users += 1
        try:
            await self.ready.wait()
            if self.failure is not None:
                raise self.failure
            async with self.loaded.use(name) as served:
                yield served
        finally:
            self.num_users -= 1

    def cards(self) -> Sequence[ModelCard]:
        return self.loaded.cards()

    def card(self, name: str) -> ModelCard:
        return self.loaded.card(name)


Test = Callable[[httpx.AsyncClient, SlowModels], Any]


def with_slow_model(path: Path, test: Test) -> None:
    async def run() -> None:
        async with await AsyncLLM.create(str(path), num_threads=1) as llm:
            loaded = OneModel("tiny", created=1)
            loaded.arrived(llm)
            models = SlowModels(loaded, asyncio.Event())

            def heard(app: ASGIApp) -> ASGIApp:
                models.heard = Overheard(app)
                return models.heard

            async with client_of(llm, registry=models, pings=SOON, layer=heard) as client:
                await asyncio.wait_for(test(client, models), 30)
            assert models.num_users == 0

    asyncio.run(run())


def test_a_stream_that_waits_for_its_model_pings(path: Path) -> None:
    async def test(client: httpx.AsyncClient, models: SlowModels) -> None:
        body = {**ASKED, "stream": True}
        asking = asyncio.ensure_future(client.post("/v1/chat/completions", json=body))
        await models.heard.bodies(1)
        models.ready.set()
        late = await asking
        soon = await client.post("/v1/chat/completions", json=body)
        assert late.status_code == 200
        assert late.text.startswith(": ping\n\n")
        assert not soon.text.startswith(": ping")
        deltas = [
            [event["choices"][0]["delta"] for event in events_of(found.text)[:-1]]
            for found in (late, soon)
        ]
        assert deltas[0] == deltas[1]

    with_slow_model(path, test)


def test_what_fails_after_the_headers_is_said_in_the_stream(path: Path) -> None:
    async def test(client: httpx.AsyncClient, models: SlowModels) -> None:
        models.failure = OutOfMemoryError("the model")
        body = {**ASKED, "stream": True}
        asking = asyncio.ensure_future(client.post("/v1/chat/completions", json=body))
        await models.heard.bodies(1)
        models.ready.set()
        late = await asking
        assert late.status_code == 200
        (event,) = events_of(late.text.replace(": ping\n\n", ""))
        assert "no memory" in event["error"]["message"]
        soon = await client.post("/v1/chat/completions", json=body)
        assert soon.status_code == 503

    with_slow_model(path, test)


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_leaves_before_its_model_comes_gives_it_back(
    path: Path, streams: bool
) -> None:
    async def test(client: httpx.AsyncClient, models: SlowModels) -> None:
        body = {**ASKED, "stream": streams}
        asking = asyncio.ensure_future(client.post("/v1/chat/completions", json=body))
        if streams:
            await models.heard.bodies(1)
        else:
            await settled()
        assert models.num_users == 1
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await settled()

    with_slow_model(path, test)


def test_a_client_that_stops_reading_is_taken_for_gone() -> None:
    closed: list[str] = []

    async def frames() -> Any:
        yield b"data: 1\n\n"

    async def run() -> None:
        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(message: Any) -> None:
            if message.get("body"):
                await asyncio.sleep(60)  # nobody reads: the buffers stay full

        async def closing() -> None:
            closed.append("closed")

        stream = EventStream(frames(), {}, closing, Pings(stalled_s=40))
        await asyncio.wait_for(stream({"type": "http"}, receive, send), 55)

    run_skipping(run())
    assert closed == ["closed"]


def test_what_is_there_at_once_is_one_piece_and_nothing_is_lost_or_late() -> None:
    """Behind many streams a call for each frame would be what all of them wait for."""
    sent: list[bytes] = []
    closed: list[str] = []

    async def frames() -> Any:
        try:
            yield b"1"
            yield b"2"
            await asyncio.sleep(1)
            yield b"3"
            await asyncio.sleep(1)  # the client has not read 3 yet
            yield b"4"
            await asyncio.sleep(1)
            yield b"5"
            raise ValueError("the last frame is out all the same")
        finally:
            closed.append("frames")

    async def run() -> None:
        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if message.get("body") == b"3":
                await asyncio.sleep(5)

        async def closing() -> None:
            closed.append("closing")

        stream = EventStream(frames(), {}, closing, Pings(30, 30))
        with pytest.raises(ValueError, match="the last frame"):
            await stream({"type": "http"}, receive, send)

    run_skipping(run())
    assert sent == [b"", b"12", b"3", b"45"]
    assert closed == ["frames", "closing"]
