"""The terminal chat at servers that others made: what is sent, what is believed, how they fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager

import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse

from edgeserve.errors import (
    AnswerBrokenError,
    EdgeServeError,
    InvalidRequestError,
    ModelNotFoundError,
    ServerRefusedError,
    ServerUnreachableError,
)
from edgeserve.tui.client import AnswerEnd, AnswerEvent, AnswerPiece, ChatSettings, Question
from edgeserve.tui.http_client import HttpClient
from edgeserve.tui.http_figures import figures_of

from .scripted_server import Script, Scripted, chunk, event, serving, stream

SECONDS = 60
QUESTION = Question([{"role": "user", "content": "a"}])


def ask(
    script: Script | None = None,
    question: Question = QUESTION,
    *,
    owner: str | None = None,
    key: str | None = None,
) -> tuple[list[AnswerEvent], EdgeServeError | None, Scripted]:
    """One answer of a scripted server: its events, the error that ended it, and the server."""
    about = {"id": "tiny", "max_model_len": 4096, **({} if owner is None else {"owned_by": owner})}
    made: AbstractContextManager[Scripted]
    made = serving(models=[about]) if script is None else serving(script, [about])
    with made as server:
        events, error = asyncio.run(asyncio.wait_for(_ask(server.url, question, key), SECONDS))
        return events, error, server


async def _ask(
    url: str, question: Question, key: str | None
) -> tuple[list[AnswerEvent], EdgeServeError | None]:
    client, events = HttpClient(url, key), list[AnswerEvent]()
    try:
        await client.use("tiny", lambda _: None)
        async for each in client.ask(question):
            events.append(each)
    except EdgeServeError as error:
        return events, error
    finally:
        await client.aclose()
    return events, None


def text_of(events: Sequence[AnswerEvent]) -> str:
    return "".join(each.text for each in events if isinstance(each, AnswerPiece))


def test_a_foreign_answer_is_read_with_its_counts() -> None:
    events, error, server = ask(key="secret")
    assert (error, text_of(events)) == (None, "onetwo")
    end = events[-1]
    assert isinstance(end, AnswerEnd)
    assert (end.finish_reason, end.prompt_tokens, end.cached_tokens) == ("length", 10, 4)
    assert (end.answer_tokens, end.seed) == (2, None)
    assert server.keys == ["Bearer secret"]


def test_a_server_of_unknown_kind_is_sent_what_all_know() -> None:
    _, _, server = ask()
    assert server.asked == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "a"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


@pytest.mark.parametrize(
    ("owner", "wanted"),
    [
        (
            "edgeserve",
            {
                "continue_final_message": True,
                "add_generation_prompt": False,
                "chat_template_kwargs": {"enable_thinking": True},
                "reasoning_budget": 64,
                "repetition_penalty": 1.1,
                "return_progress": True,
            },
        ),
        (
            "llamacpp",
            {
                "chat_template_kwargs": {"enable_thinking": True},
                "repeat_penalty": 1.1,
                "return_progress": True,
            },
        ),
        ("library", {"repetition_penalty": 1.1}),
    ],
)
def test_each_server_is_asked_in_its_words(owner: str, wanted: dict[str, object]) -> None:
    settings = ChatSettings(
        temperature=0.5,
        top_k=3,
        max_tokens=9,
        seed=5,
        repetition_penalty=1.1,
        thinking=True,
        thinking_budget=64,
    )
    question = Question([{"role": "assistant", "content": "a"}], settings, True, 2)
    _, _, server = ask(question=question, owner=owner)
    always = {
        "model": "tiny",
        "messages": [{"role": "assistant", "content": "a"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "top_k": 3,
        "max_tokens": 9,
        "seed": 5,
        "logprobs": True,
        "top_logprobs": 2,
    }
    assert server.asked == [always | wanted]


def test_no_reasoning_is_asked_for_in_two_ways() -> None:
    question = Question(QUESTION.messages, ChatSettings(thinking=False))
    _, _, server = ask(question=question, owner="edgeserve")
    assert server.asked[0]["chat_template_kwargs"] == {"enable_thinking": False}
    assert server.asked[0]["reasoning_effort"] == "none"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_told_from_text_by_either_name(field: str) -> None:
    events, _, _ = ask(
        lambda _: stream(
            [
                event({"choices": [{"delta": {field: "hm"}}]}),
                chunk("so"),
                chunk(finish_reason="stop"),
                "data: [DONE]\n\n",
            ]
        )
    )
    pieces = [each for each in events if isinstance(each, AnswerPiece)]
    assert [(each.text, each.is_reasoning) for each in pieces] == [("hm", True), ("so", False)]


def test_a_stream_that_is_whole_needs_no_done() -> None:
    events, error, _ = ask(lambda _: stream([chunk("one"), chunk(finish_reason="stop")]))
    assert (error, text_of(events)) == (None, "one")


def cut() -> Response:
    """A connection that breaks off in the middle."""

    async def body() -> AsyncIterator[str]:
        yield chunk("one ")
        yield chunk("two")
        raise ConnectionResetError

    return StreamingResponse(body(), media_type="text/event-stream")


@pytest.mark.parametrize(
    ("response", "said"),
    [
        (cut, "the connection was lost"),
        (lambda: stream([chunk("one "), chunk("two")]), "in the middle"),
        (
            lambda: stream([chunk("one two"), event({"error": {"message": "out of memory"}})]),
            "it said 'out of memory'",
        ),
        (lambda: stream([chunk("one two"), "data: {oops\n\n"]), "no answer"),
        (lambda: stream([chunk("one two"), "data: " + "[" * 100_000 + "\n\n"]), "no answer"),
        (lambda: stream([chunk("one two"), event({"choices": 3})]), "no answer"),
        (
            lambda: stream([chunk("one two"), *["x" * (1 << 20)] * 20]),
            "an event of more",
        ),
    ],
)
def test_an_answer_that_breaks_off_keeps_what_came(response: object, said: str) -> None:
    assert callable(response)
    events, error, _ = ask(lambda _: response())
    assert isinstance(error, AnswerBrokenError)
    assert said in str(error)
    assert "ask again" in str(error)
    assert text_of(events) == "one two"
    assert not any(isinstance(each, AnswerEnd) for each in events)


@pytest.mark.parametrize(
    ("response", "status", "said"),
    [
        (
            JSONResponse({"error": {"message": "no such key"}}, 401),
            401,
            "no such key; pass its key",
        ),
        (Response("<html>Bad gateway", 502), 502, "Bad gateway"),
        (JSONResponse({"choices": []}), 200, "where a stream was due"),
    ],
)
def test_a_refusal_says_what_the_server_said(response: Response, status: int, said: str) -> None:
    events, error, _ = ask(lambda _: response)
    assert isinstance(error, ServerRefusedError)
    assert (events, error.status) == ([], status)
    assert said in str(error)


def test_a_server_that_is_gone_is_named() -> None:
    with serving() as server:
        url = server.url

    async def run() -> None:
        client = HttpClient(url)
        with pytest.raises(ServerUnreachableError, match="is it running"):
            await client.models()
        await client.aclose()

    asyncio.run(run())


def test_a_server_that_went_away_between_two_answers() -> None:
    async def run() -> None:
        with serving() as server:
            client = HttpClient(server.url)
            await client.use("tiny", lambda _: None)
        with pytest.raises(ServerUnreachableError):
            async for _ in client.ask(QUESTION):
                pass
        await client.aclose()

    asyncio.run(run())


def test_what_a_server_does_not_tell_is_none() -> None:
    async def run(url: str) -> None:
        client = HttpClient(url)
        await client.use("tiny", lambda _: None)
        assert await client.size(QUESTION) is None
        assert await client.figures() is None
        assert client.place == url
        await client.aclose()

    with serving() as server:
        asyncio.run(run(server.url))


def test_a_model_that_is_not_listed_is_named_with_those_that_are() -> None:
    async def run(url: str) -> None:
        client = HttpClient(url)
        with pytest.raises(ModelNotFoundError, match="it lists tiny"):
            await client.use("large", lambda _: None)
        await client.aclose()

    with serving() as server:
        asyncio.run(run(server.url))


def test_what_is_no_address_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="URL"):
        HttpClient("ftp://somewhere")


def test_stopping_does_not_wait_for_a_server_that_says_nothing() -> None:
    async def run(url: str) -> None:
        client = HttpClient(url)
        await client.use("tiny", lambda _: None)
        asked = client.ask(QUESTION)
        events: list[AnswerEvent] = []
        async for each in asked:
            events.append(each)
            await asked.stop()
        assert isinstance(events[-1], AnswerEnd)
        assert (events[-1].finish_reason, text_of(events)) == ("stopped", "one")
        await client.aclose()

    async def body() -> AsyncIterator[str]:
        yield chunk("one")
        await asyncio.Event().wait()

    with serving(lambda _: StreamingResponse(body(), media_type="text/event-stream")) as server:
        asyncio.run(asyncio.wait_for(run(server.url), SECONDS))


def test_tokens_of_a_foreign_server_are_shares() -> None:
    logprobs = {
        "content": [
            {
                "token": "so",
                "logprob": -0.5,
                "top_logprobs": [{"token": "so", "logprob": -0.5}, {"token": "x", "logprob": -2}],
            }
        ]
    }
    piece = {"choices": [{"delta": {"content": "so"}, "logprobs": logprobs}]}
    events, _, _ = ask(
        lambda _: stream([event(piece), chunk(finish_reason="stop"), "data: [DONE]\n\n"])
    )
    assert isinstance(events[0], AnswerPiece)
    fact = events[0].tokens[0]
    assert fact.text == "so"
    assert fact.probability == pytest.approx(0.6065, abs=1e-4)
    assert [text for text, _ in fact.alternatives] == ["so", "x"]


@pytest.mark.parametrize("text", ["", "<html>", "{} 3\n", "a{b=\n", json.dumps({"a": 1})])
def test_what_is_no_metrics_gives_no_figures(text: str) -> None:
    assert figures_of(text, "tiny") is None


def test_answers_of_many_words_are_whole() -> None:
    words = [f"{i} " for i in range(3000)]  # more than wait untaken
    body = "".join([*map(chunk, words), chunk(finish_reason="stop")])
    events, error, _ = ask(lambda _: stream([body]))
    assert (error, text_of(events)) == (None, "".join(words))
