"""Over real sockets: the openai package, clients that go away, and silence."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from edgeserve import AsyncLLM
from edgeserve.server.sse import EventStream, Pings

from .server_harness import USER, real_server
from .skipping_loop import run_skipping
from .tiny_models import write_tiny_model

CONTEXT = 4096
LONG: dict[str, Any] = {"messages": USER, "ignore_eos": True, "temperature": 1, "seed": 1}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, AsyncLLM]]:
    folder = tmp_path_factory.mktemp("model")
    path = write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT)
    with real_server(path, max_num_seqs=2) as found:
        yield found


@pytest.fixture
def url(server: tuple[str, AsyncLLM]) -> str:
    return server[0]


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


# --- the openai package --------------------------------------------------------------------------


def test_openai_chats(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        whole = client.chat.completions.create(model="tiny", max_tokens=8, seed=1, messages=USER)  # type: ignore[arg-type]
        stream = client.chat.completions.create(
            model="tiny",
            max_tokens=8,
            seed=1,
            messages=USER,  # type: ignore[arg-type]
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        pieces = [c.choices[0].delta.content or "" for c in chunks if c.choices]
        assert "".join(pieces) == whole.choices[0].message.content
        assert chunks[-1].usage is not None
        assert whole.usage is not None
        assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
        assert [model.id for model in client.models.list()] == ["tiny"]
        assert client.models.retrieve("tiny").id == "tiny"


def test_openai_chats_with_logprobs_and_choices(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        found = client.chat.completions.create(
            model="tiny",
            max_tokens=4,
            messages=USER,  # type: ignore[arg-type]
            n=3,
            logprobs=True,
            top_logprobs=2,
            extra_body={"ignore_eos": True, "skip_special_tokens": False},
        )
        assert [choice.index for choice in found.choices] == [0, 1, 2]
        for choice in found.choices:
            assert choice.logprobs is not None
            assert choice.logprobs.content is not None
            assert len(choice.logprobs.content) == 4
            for entry in choice.logprobs.content:
                assert entry.logprob <= 0
                assert len(entry.top_logprobs) == 2
                assert entry.bytes is not None
            text = b"".join(bytes(entry.bytes or ()) for entry in choice.logprobs.content)
            assert text.decode(errors="replace") == choice.message.content


def test_openai_streams_with_its_helper(url: str) -> None:
    given: Any = {"model": "tiny", "messages": USER, "seed": 1, "max_tokens": 30}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        whole = client.chat.completions.create(**given).choices[0].message.content or ""
        stop = whole[len(whole) // 2 :][:4]  # it refuses answers that were cut by a limit
        with client.chat.completions.stream(**given, stop=[stop]) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            final = stream.get_final_completion()
        assert final.choices[0].message.content == text == whole[: whole.index(stop)]


def test_openai_streams_many_at_once(url: str) -> None:
    async def ask(client: openai.AsyncOpenAI, seed: int) -> tuple[str, str]:
        given: Any = {"model": "tiny", "max_tokens": 12, "messages": USER, "seed": seed}
        whole = await client.chat.completions.create(**given)
        stream = await client.chat.completions.create(**given, stream=True)
        text = "".join([c.choices[0].delta.content or "" async for c in stream])
        return text, whole.choices[0].message.content or ""

    async def ask_all() -> None:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any") as client:
            for streamed, whole in await asyncio.gather(*(ask(client, s) for s in range(16))):
                assert streamed == whole

    asyncio.run(ask_all())


def test_openai_completes_and_refusals_are_its_errors(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        found = client.completions.create(model="tiny", prompt="the", max_tokens=4, echo=True)
        assert found.choices[0].text.startswith("the")
        pieces = client.completions.create(model="tiny", prompt="the", max_tokens=4, stream=True)
        assert [chunk.choices[0].text for chunk in pieces]
        with pytest.raises(openai.BadRequestError, match="temperature"):
            client.completions.create(model="tiny", prompt="the", temperature=-1)
        with pytest.raises(openai.NotFoundError, match="tiny"):
            client.completions.create(model="other", prompt="the")


# --- clients that go away ------------------------------------------------------------------------


def _engine(server: tuple[str, AsyncLLM]) -> Any:
    return server[1].model.engine


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_goes_away_in_mid_answer_frees_its_request(
    server: tuple[str, AsyncLLM], streams: bool
) -> None:
    engine = _engine(server)
    body = {**LONG, "stream": streams}
    with (
        httpx.Client(base_url=server[0], timeout=0.5) as client,
        pytest.raises(httpx.ReadTimeout) if not streams else _nothing(),
        client.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        lines = answer.iter_lines()
        for _ in range(3):
            next(lines)
        assert engine.has_work
    until(lambda: not engine.has_work, 5)


def test_clients_that_wait_in_the_queue_may_go_away(server: tuple[str, AsyncLLM]) -> None:
    engine = _engine(server)
    body = {**LONG, "stream": True}
    with httpx.Client(base_url=server[0], timeout=30) as client:
        with (
            client.stream("POST", "/v1/chat/completions", json=body) as first,
            client.stream("POST", "/v1/chat/completions", json=body) as second,
        ):
            running = [first.iter_lines(), second.iter_lines()]
            for lines in running:
                next(lines)
            until(lambda: engine.num_sequences == 2)
            with client.stream("POST", "/v1/chat/completions", json=body) as queued:
                assert queued.status_code == 200
            for lines in running:
                next(lines)
        until(lambda: not engine.has_work, 5)
    engine.check()


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


# --- silence -------------------------------------------------------------------------------------


def test_silence_is_broken_by_pings() -> None:
    """The first after one wait, then at another pace; none while frames come."""
    sent: list[bytes] = []

    async def frames() -> Any:
        yield b"data: 1\n\n"
        await asyncio.sleep(3.5)
        yield b"data: 2\n\n"
        for _ in range(4):
            await asyncio.sleep(0.5)
            yield b"data: 3\n\n"

    async def run() -> None:
        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        async def closing() -> None:
            sent.append(b"closed")

        stream = EventStream(frames(), {}, closing, Pings(1, 2))
        await stream({"type": "http"}, receive, send)

    run_skipping(run())
    pings = [at for at, body in enumerate(sent) if body == b": ping\n\n"]
    assert len(pings) == 2  # at 1 and 3
    assert sent[pings[0] - 1] == b"data: 1\n\n"
    assert sent[pings[1] + 1] == b"data: 2\n\n"
    assert sent[-1] == b"closed"


# --- clients that say nothing ---------------------------------------------------------------------


def test_clients_that_stall_do_not_hold_others(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    stalled = [socket.create_connection((host, int(port))) for _ in range(50)]
    try:
        for connection in stalled:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n")
        body = {"messages": USER, "max_tokens": 2}
        assert httpx.post(f"{url}/v1/chat/completions", json=body).status_code == 200
    finally:
        for connection in stalled:
            connection.close()
