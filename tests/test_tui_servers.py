"""A server that fails behind the chat: what is said, and that the conversation goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from edgeserve.chats.records import TurnState
from edgeserve.tui.http_client import HttpClient

from .chat_app import Table, drive
from .scripted_server import answer, chunk, event, serving, stream

Script = Callable[[dict[str, Any]], Response]


class Failing:
    """Fails once, then answers "ended well"."""

    def __init__(self, first: Script) -> None:
        self._first: Script | None = first

    def __call__(self, body: dict[str, Any]) -> Response:
        first, self._first = self._first, None
        return answer([" ended", " well"]) if first is None else first(body)


def _drive(
    folder: Path, script: Script, body: Callable[[Table], Any], *, owner: str = "library"
) -> None:
    with serving(script, [{"id": "tiny", "max_model_len": 4096, "owned_by": owner}]) as server:

        async def first(table: Table) -> None:
            await table.until(lambda: client.model is not None)
            await body(table)

        client = HttpClient(server.url)
        drive(folder, first, client=client)  # type: ignore[arg-type]


def _reset(_: dict[str, Any]) -> Response:
    async def body() -> AsyncIterator[str]:
        yield chunk("half")
        raise ConnectionResetError

    return StreamingResponse(body(), media_type="text/event-stream")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (_reset, "the connection was lost"),
        (lambda _: stream([chunk("half")]), "it ended the stream in the middle"),
        (lambda _: stream([chunk("half"), "data: {oops\n\n"]), "it sent what is no answer"),
        (
            lambda _: stream([chunk("half"), event({"error": {"message": "out of memory"}})]),
            "it said 'out of memory'",
        ),
    ],
    ids=["reset", "half-closed", "malformed", "error event"],
)
def test_an_answer_that_breaks_off_stays_and_is_continued(
    tmp_path: Path, failure: Script, said: str
):
    async def body(table: Table) -> None:
        await table.type("Hi", "enter")
        await table.says("Nothing is lost: /continue goes on from here")
        await table.says(said)
        assert table.texts() == ["Hi", "half"]
        assert table.chat.talk.turns[-1].state is TurnState.FAILED
        await table.type("/continue", "enter")
        await table.until(lambda: table.texts() == ["Hi", "half ended well"])

    _drive(tmp_path, Failing(failure), body)


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (
            HTMLResponse("<html><head><title>500</title></head><h1>It broke</h1></html>", 500),
            "answered 500: 500 It broke",
        ),
        (JSONResponse({"error": {"message": "no such key"}}, 401), "pass its key with --api-key"),
        (
            JSONResponse({"error": {"message": "slow down"}}, 429, {"Retry-After": "20"}),
            "slow down; wait 20 seconds, then ask again",
        ),
        (JSONResponse({"error": {"message": "Loading model"}}, 503), "wait a moment"),
        (JSONResponse({"choices": []}), "where a stream was due"),
    ],
    ids=["html", "key", "too many", "loading", "no stream"],
)
def test_a_refusal_says_what_to_do_and_the_question_is_asked_again(
    tmp_path: Path, response: Response, said: str
):
    async def body(table: Table) -> None:
        await table.type("Hi", "enter")
        await table.says("Nothing is lost: ctrl+r asks again")
        await table.says(said)
        await table.pilot.press("ctrl+r")
        await table.until(lambda: table.texts() == ["Hi", " ended well"])

    _drive(tmp_path, Failing(lambda _: response), body)


def test_a_server_that_stalls_is_stopped_at_once_and_what_came_stays(tmp_path: Path):
    async def stalling() -> AsyncIterator[str]:
        yield chunk("half")
        await asyncio.Event().wait()

    async def body(table: Table) -> None:
        await table.type("Hi", "enter")
        await table.until(lambda: table.texts() == ["Hi", "half"])
        await table.pilot.press("escape")
        await table.until(lambda: not table.chat.talk.is_answering)
        assert table.chat.talk.turns[-1].state is TurnState.STOPPED
        await table.type("/continue", "enter")
        await table.until(lambda: table.texts() == ["Hi", "half ended well"])

    failing = Failing(lambda _: StreamingResponse(stalling(), media_type="text/event-stream"))
    _drive(tmp_path, failing, body)


def test_an_answer_without_counts_is_shown_without_them(tmp_path: Path):
    async def body(table: Table) -> None:
        await table.ask("Hi")
        assert table.texts() == ["Hi", "one"]
        assert table.chat.talk.used_tokens is None
        await table.shows("4.1k")

    script = [chunk("one"), chunk(finish_reason="stop"), "data: [DONE]\n\n"]
    _drive(tmp_path, lambda _: stream(script), body)


def test_a_server_that_is_not_there_is_told_and_asked_once_it_is(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    client = HttpClient(f"http://127.0.0.1:{port}")

    async def body(table: Table) -> None:
        await table.says("is it running?")
        await table.type("Hi", "enter")
        await table.says("your question waits for a model: f4")
        with serving(lambda _: answer(["here"]), port=port):
            await table.type("/model tiny", "enter")
            await table.until(lambda: table.texts() == ["Hi", "here"])

    drive(tmp_path, body, client=client)  # type: ignore[arg-type]


def test_what_llama_server_sends_once_more_is_not_text(tmp_path: Path):
    """It begins the answer that goes on with the message that it goes on with."""
    answers = iter(
        [
            [chunk("The rain "), chunk("is"), chunk(finish_reason="length")],
            [chunk("The rain is"), chunk(" wet"), chunk(finish_reason="stop")],
        ]
    )

    async def body(table: Table) -> None:
        await table.ask("Rain?")
        await table.type("/continue", "enter")
        await table.until(lambda: table.texts() == ["Rain?", "The rain is wet"])

    _drive(tmp_path, lambda _: stream(next(answers)), body, owner="llamacpp")


def test_a_context_that_llama_server_says_is_full_is_the_users_to_decide_on(tmp_path: Path):
    full = JSONResponse(
        {
            "error": {
                "code": 400,
                "message": "request (6031 tokens) exceeds the available context size "
                "(4096 tokens), try increasing it",
                "type": "exceed_context_size_error",
            }
        },
        400,
    )
    answers = iter([answer(["a" * 50]), full, answer(["fits"])])

    async def body(table: Table) -> None:
        await table.ask("1" * 50)
        await table.type("2" * 50, "enter")
        await table.shows("The context is full")
        await table.says("the model has 4,096")
        await table.pilot.press("enter")
        await table.until(lambda: table.texts()[-1] == "fits")
        assert len(table.chat.talk.dropped) == 2

    _drive(tmp_path, lambda _: next(answers), body)
