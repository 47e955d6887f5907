"""/v1/messages over real sockets, with the anthropic package: streams, tools, thoughts, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest

from edgeserve.errors import NonFiniteLogitsError
from edgeserve.server.security import SecurityPolicy
from edgeserve.server.sse import Pings
from edgeserve.server.turn import PromptProgress

from .scripted_turn import CALLED, SAID, THOUGHT, ended, named_events, scripted
from .server_harness import USER, real_server
from .tiny_models import write_tiny_model

CONTEXT = 512
ASKED: dict[str, Any] = {"model": "tiny", "max_tokens": 8, "messages": USER}
GREEDY: dict[str, Any] = {**ASKED, "extra_body": {"seed": 1}}
TOOLS: list[dict[str, Any]] = [
    {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {}}}},
    {"name": "clock", "input_schema": {"type": "object"}},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT)


@pytest.fixture(scope="module")
def url(path: Path) -> Iterator[str]:
    with real_server(path) as (found, _):
        yield found


@pytest.fixture
def client(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as found:
        yield found


def post(url: str, **fields: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/messages?beta=true", json={**ASKED, **fields}, timeout=30)


def names(found: httpx.Response) -> list[str]:
    """The names of a stream's events, deltas of one kind together."""
    seen: list[str] = []
    for name, data in named_events(found.text):
        value = json.loads(data)
        assert value["type"] == name
        label = value["delta"]["type"] if name == "content_block_delta" else name
        if not seen or seen[-1] != label:
            seen.append(label)
    return seen


# --- the model's own words -----------------------------------------------------------------------


def test_a_message_is_the_same_streamed_or_not(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**GREEDY)
    with client.messages.stream(**GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert whole.content[0].type == "text"
    assert whole.content[0].text == text
    assert final.content[0].text == text  # type: ignore[union-attr]
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert whole.model == "tiny"
    assert whole.id.startswith("msg_")


def test_input_tokens_leave_out_what_was_cached(client: anthropic.Anthropic) -> None:
    asked = {**GREEDY, "messages": [{"role": "user", "content": "a long prompt " * 8}]}
    count = client.messages.count_tokens(model="tiny", messages=asked["messages"]).input_tokens
    for _ in range(2):
        usage = client.messages.create(**asked).usage
        assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == count
    assert usage.cache_read_input_tokens


def test_a_stop_sequence_is_named(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(**{**GREEDY, "max_tokens": 30})
    text = whole.content[0].text  # type: ignore[union-attr]
    stop = text[len(text) // 2 :][:3]
    found = client.messages.create(**{**GREEDY, "max_tokens": 30}, stop_sequences=["", stop])
    assert found.stop_reason == "stop_sequence"
    assert found.stop_sequence == stop
    assert found.content[0].text == text[: text.index(stop)]  # type: ignore[union-attr]


def test_a_limit_is_max_tokens(client: anthropic.Anthropic) -> None:
    found = client.messages.create(**ASKED, extra_body={"ignore_eos": True})
    assert found.stop_reason == "max_tokens"
    assert found.usage.output_tokens == 8


# --- the order of a stream -----------------------------------------------------------------------


def test_the_order_of_a_plain_stream(url: str) -> None:
    found = post(url, stream=True)
    assert found.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert names(found) == [
        "message_start",
        "content_block_start",
        "text_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_the_order_of_thoughts_text_and_calls(url: str) -> None:
    with scripted(THOUGHT, SAID, CALLED, ended("tool_calls")):
        found = post(url, stream=True, tools=TOOLS)
    block = ["content_block_stop", "content_block_start"]
    assert names(found) == [
        "message_start",
        "content_block_start",
        "thinking_delta",
        "signature_delta",
        *block,
        "text_delta",
        *block,
        "input_json_delta",
        *block,
        "input_json_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    values = [json.loads(data) for _, data in named_events(found.text)]
    starts = [v for v in values if v["type"] == "content_block_start"]
    assert [v["index"] for v in starts] == [0, 1, 2, 3]
    assert starts[2]["content_block"] == {
        "type": "tool_use",
        "id": "call_1",
        "name": "weather",
        "input": {},
    }
    assert values[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert values[-2]["usage"]["output_tokens"] == 6


def test_a_stream_begins_with_what_of_the_prompt_was_cached(url: str) -> None:
    with scripted([PromptProgress(10, 4, 4, 0.5)], SAID, ended("stop")):
        found = post(url, stream=True)
    message = json.loads(named_events(found.text)[0][1])["message"]
    assert message["content"] == []
    assert message["stop_reason"] is None
    assert message["usage"] == {
        "input_tokens": 6,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 4,
        "output_tokens": 0,
    }


def test_the_client_puts_tools_and_thoughts_together(client: anthropic.Anthropic) -> None:
    with scripted(THOUGHT, SAID, CALLED, ended("tool_calls")):
        whole = client.messages.create(**ASKED, tools=TOOLS)  # type: ignore[call-overload]
        with client.messages.stream(**ASKED, tools=TOOLS) as stream:  # type: ignore[arg-type]
            final = stream.get_final_message()
    for found in (whole, final):
        thought, text, weather, clock = found.content
        assert thought.thinking == "let me see"
        assert thought.signature
        assert text.text == "it rains"
        assert (weather.id, weather.name, weather.input) == ("call_1", "weather", {"city": "Köln"})
        assert clock.input == {}
        assert found.stop_reason == "tool_use"
        assert found.usage.cache_read_input_tokens == 4
        assert found.usage.input_tokens == 6


def test_silence_is_broken_by_ping_events(path: Path) -> None:
    with (
        real_server(path, context={"pings": Pings(0.02, 0.02)}) as (url, _),
        scripted([0.3], SAID, ended("stop")),
    ):
        assert names(post(url, stream=True))[:2] == ["ping", "message_start"]
        with (
            anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as client,
            client.messages.stream(**ASKED) as stream,
        ):
            assert stream.get_final_text() == "it rains"


def test_a_call_that_was_cut_short_is_delivered_without_arguments(url: str) -> None:
    with scripted(CALLED[:2], ended("length")):
        found = post(url, tools=TOOLS).json()
    assert found["stop_reason"] == "max_tokens"
    assert found["content"][0]["input"] == {}


# --- errors --------------------------------------------------------------------------------------


def test_a_prompt_that_is_too_long_is_said_in_the_words_that_agents_know(
    client: anthropic.Anthropic,
) -> None:
    messages = [{"role": "user", "content": "long " * CONTEXT}]
    count = client.messages.count_tokens(model="tiny", messages=messages).input_tokens  # type: ignore[arg-type]
    assert count > CONTEXT
    expected = f"prompt is too long: {count} tokens > {CONTEXT} maximum"
    with pytest.raises(anthropic.BadRequestError, match=expected) as caught:
        client.messages.create(model="tiny", max_tokens=4, messages=messages)  # type: ignore[arg-type]
    assert caught.value.body["error"]["type"] == "invalid_request_error"  # type: ignore[index]


def test_an_unknown_model_is_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(**{**ASKED, "model": "claude"})
    assert caught.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]


def test_an_error_in_mid_stream_is_an_event(client: anthropic.Anthropic) -> None:
    with (
        scripted(SAID, [NonFiniteLogitsError(7)]),
        pytest.raises(anthropic.APIStatusError, match="non-finite"),
        client.messages.stream(**ASKED) as stream,
    ):
        stream.get_final_message()


def test_either_key_header_opens_and_a_wrong_one_is_its_error(path: Path) -> None:
    context = {"security": SecurityPolicy(keys=("secret",))}
    with real_server(path, context=context) as (url, _):
        for key in ({"api_key": "secret"}, {"auth_token": "secret"}):
            with anthropic.Anthropic(base_url=url, max_retries=0, **key) as client:  # type: ignore[arg-type]
                assert client.messages.create(**ASKED).role == "assistant"
        with (
            anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0) as client,
            pytest.raises(anthropic.AuthenticationError) as caught,
        ):
            client.messages.create(**ASKED)
        body = caught.value.body
        assert body["type"] == "error"  # type: ignore[index]
        assert body["error"]["type"] == "authentication_error"  # type: ignore[index]


def test_other_methods_get_an_error_of_this_shape(url: str) -> None:
    found = httpx.get(f"{url}/v1/messages")
    assert found.status_code == 405
    assert found.json()["type"] == "error"
