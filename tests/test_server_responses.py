"""/v1/responses over real sockets, with the openai package: streams, tools, thoughts, the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import httpx
import openai
import pytest

from edgeserve.errors import NonFiniteLogitsError
from edgeserve.server.turn import TextDelta, ToolArguments, ToolCallBegun

from .scripted_turn import CALLED, SAID, THOUGHT, ended, named_events, scripted
from .server_harness import real_server
from .tiny_models import write_tiny_model

CONTEXT = 512
ASKED: dict[str, Any] = {"model": "tiny", "input": "the inn", "max_output_tokens": 8}
GREEDY: dict[str, Any] = {**ASKED, "extra_body": {"seed": 1}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}},
    {"type": "function", "name": "clock", "parameters": None},
    {"type": "custom", "name": "patch"},
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("model")
    path = write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT)
    with real_server(path) as (found, _):
        yield found


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as found:
        yield found


def post(url: str, **fields: Any) -> httpx.Response:
    return httpx.post(f"{url}/v1/responses", json={**ASKED, **fields}, timeout=30)


def events(found: httpx.Response) -> list[dict[str, Any]]:
    """A stream's events, which are numbered and named twice."""
    values: list[dict[str, Any]] = []
    for name, data in named_events(found.text):
        values.append(json.loads(data))
        assert values[-1]["type"] == name
    assert [value["sequence_number"] for value in values] == list(range(len(values)))
    return values


def order(values: list[dict[str, Any]]) -> list[str]:
    """Their types, deltas that follow each other as one."""
    return [name.removeprefix("response.") for name, _ in groupby(v["type"] for v in values)]


# --- the model's own words -----------------------------------------------------------------------


def test_a_response_is_the_same_streamed_or_not(client: openai.OpenAI) -> None:
    long = {**ASKED, "max_output_tokens": 30}
    text = client.responses.create(**long, extra_body={"seed": 1}).output_text
    stop = text[len(text) // 2 :][:4]  # its helper knows no end but a good one
    asked = {**long, "extra_body": {"seed": 1, "stop": [stop]}}
    whole = client.responses.create(**asked)
    pieces: list[str] = []
    with client.responses.stream(**asked) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
        final = stream.get_final_response()
    assert "".join(pieces) == whole.output_text == final.output_text == text[: text.index(stop)]
    assert whole.status == final.status == "completed"
    assert whole.usage is not None
    assert final.usage is not None
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert whole.object == "response"
    assert whole.id.startswith("resp_")
    assert whole.model == "tiny"


def test_a_limit_makes_it_incomplete(client: openai.OpenAI, url: str) -> None:
    found = client.responses.create(**ASKED, extra_body={"ignore_eos": True})
    assert found.status == "incomplete"
    assert found.incomplete_details is not None
    assert found.incomplete_details.reason == "max_output_tokens"
    assert found.output[-1].status == "incomplete"  # type: ignore[union-attr]
    values = events(post(url, ignore_eos=True, stream=True))
    assert values[-1]["type"] == "response.incomplete"
    assert values[-1]["response"]["status"] == "incomplete"
    assert values[-2]["item"]["status"] == "incomplete"


def test_logprobs_where_they_are_asked_for(client: openai.OpenAI) -> None:
    found = client.responses.create(
        **GREEDY, top_logprobs=2, include=["message.output_text.logprobs"]
    )
    part = found.output[0].content[0]  # type: ignore[union-attr]
    assert found.usage is not None
    assert len(part.logprobs) == found.usage.output_tokens  # type: ignore[union-attr, arg-type]
    assert len(part.logprobs[0].top_logprobs) == 2  # type: ignore[union-attr, index]


# --- the order of a stream -----------------------------------------------------------------------


def test_the_order_of_thoughts_text_and_calls(url: str) -> None:
    with scripted(THOUGHT, SAID, CALLED, ended("tool_calls", reasoning_tokens=2)):
        values = events(post(url, stream=True, tools=TOOLS))
    item = ["output_item.added", "content_part.added"]
    call = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert order(values) == [
        "created",
        "in_progress",
        *item,
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        *item,
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        *call,
        *call,
        "completed",
    ]
    done = [value["item"] for value in values if value["type"] == "response.output_item.done"]
    response = values[-1]["response"]
    assert response["output"] == done
    assert [entry["type"] for entry in done] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert [v["output_index"] for v in values if v["type"] == "response.output_item.added"] == [
        0,
        1,
        2,
        3,
    ]
    assert done[2]["arguments"] == '{"city": "Köln"}'
    assert response["usage"] == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 6,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 16,
    }


def test_the_client_puts_items_together(client: openai.OpenAI) -> None:
    with scripted(THOUGHT, SAID, CALLED, ended("tool_calls")):
        whole = client.responses.create(**ASKED, tools=TOOLS)  # type: ignore[call-overload]
        with client.responses.stream(**ASKED, tools=TOOLS) as stream:  # type: ignore[arg-type]
            for _ in stream:
                pass
            final = stream.get_final_response()
    for found in (whole, final):
        thought, message, weather, clock = found.output
        assert thought.content[0].text == "let me see"
        assert message.content[0].text == found.output_text == "it rains"
        assert (weather.call_id, weather.name) == ("call_1", "weather")
        assert json.loads(weather.arguments) == {"city": "Köln"}
        assert clock.arguments == "{}"
        assert found.status == "completed"


def test_a_custom_tool_is_called_with_free_text(client: openai.OpenAI, url: str) -> None:
    script = [
        ToolCallBegun(0, 0, "call_1", "patch"),
        *(ToolArguments(0, 0, piece) for piece in ('{"in', 'put": "*** a\\', "n\\u00e", '9"}')),
    ]
    with scripted(script, ended("tool_calls")):
        values = events(post(url, stream=True, tools=TOOLS))
        whole = client.responses.create(**ASKED, tools=TOOLS)  # type: ignore[call-overload]
    assert order(values)[2:-1] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    deltas = [v["delta"] for v in values if v["type"].endswith("input.delta")]
    assert "".join(deltas) == "*** a\né"
    assert whole.output[0].type == "custom_tool_call"
    assert whole.output[0].input == "*** a\né"


def test_a_call_of_a_tool_in_a_namespace_says_both_names(client: openai.OpenAI) -> None:
    space = {"type": "namespace", "name": "town", "tools": TOOLS[:1]}
    script = [ToolCallBegun(0, 0, "call_1", "town__weather"), ToolArguments(0, 0, "{}")]
    with scripted(script, ended("tool_calls")):
        found = client.responses.create(**ASKED, tools=[space])  # type: ignore[call-overload]
    assert (found.output[0].namespace, found.output[0].name) == ("town", "weather")


def test_a_call_that_was_cut_short_comes_as_far_as_it_got(client: openai.OpenAI) -> None:
    with scripted(CALLED[:2], ended("length")):
        found = client.responses.create(**ASKED, tools=TOOLS)  # type: ignore[call-overload]
    assert found.status == "incomplete"
    assert found.output[0].arguments == '{"city": '
    assert found.output[0].status == "incomplete"


def test_an_error_in_mid_stream_fails_the_response(url: str) -> None:
    with scripted([TextDelta(0, "it ")], [NonFiniteLogitsError(7)]):
        values = events(post(url, stream=True))
    assert values[-1]["type"] == "response.failed"
    response = values[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"]["code"] == "server_error"
    assert "non-finite" in response["error"]["message"]
    assert httpx.get(f"{url}/v1/responses/{response['id']}").status_code == 404


# --- going on ------------------------------------------------------------------------------------


def test_going_on_by_id_is_the_same_as_with_the_whole_history(client: openai.OpenAI) -> None:
    first = client.responses.create(**GREEDY)
    by_id = client.responses.create(
        **{**GREEDY, "input": "and then?"}, previous_response_id=first.id
    )
    history = [
        {"role": "user", "content": "the inn"},
        *(item.model_dump(exclude_none=True) for item in first.output),
        {"role": "user", "content": "and then?"},
    ]
    whole = client.responses.create(**{**GREEDY, "input": history})
    assert by_id.output_text == whole.output_text
    assert by_id.usage is not None
    assert whole.usage is not None
    assert by_id.usage.input_tokens == whole.usage.input_tokens
    assert by_id.previous_response_id == first.id
    assert by_id.usage.input_tokens_details.cached_tokens


def test_thoughts_come_back_with_the_history(client: openai.OpenAI) -> None:
    with scripted(THOUGHT, CALLED[:3], ended("tool_calls")) as tasks:
        first = client.responses.create(
            **ASKED,  # type: ignore[arg-type]
            tools=TOOLS,
            store=False,
            include=["reasoning.encrypted_content"],
        )
        thought, call = first.output
        sealed = {"type": "reasoning", "id": "x", "summary": [], "content": None}
        client.responses.create(
            model="tiny",
            input=[  # type: ignore[arg-type]
                {"role": "user", "content": "hi"},
                {**sealed, "encrypted_content": thought.encrypted_content},
                call.model_dump(exclude_none=True),
                {"type": "function_call_output", "call_id": "call_1", "output": "sun"},
            ],
        )
    assert tasks[-1].messages[1].get("reasoning_content") == "let me see"
    assert [message["role"] for message in tasks[-1].messages] == ["user", "assistant", "tool"]


def test_kept_responses_are_shown_and_deleted(client: openai.OpenAI) -> None:
    found = client.responses.create(**GREEDY)
    assert client.responses.retrieve(found.id).output_text == found.output_text
    client.responses.delete(found.id)
    for gone in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError, match="not found"):
            gone(found.id)
    with pytest.raises(openai.BadRequestError, match="not found") as caught:
        client.responses.create(**ASKED, previous_response_id=found.id)
    assert caught.value.code == "previous_response_not_found"
    assert caught.value.param == "previous_response_id"


def test_what_a_kept_response_answers_is_listed(client: openai.OpenAI, url: str) -> None:
    history: list[Any] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "b"}], "id": "msg_own"},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sun"},
    ]
    first = client.responses.create(**{**GREEDY, "input": history})
    second = client.responses.create(
        **{**GREEDY, "input": "and then?"}, previous_response_id=first.id
    )

    def listed(response_id: str, **query: Any) -> list[Any]:
        return list(client.responses.input_items.list(response_id, **query))  # page by page

    items = listed(first.id, order="asc")
    assert [item.type for item in items] == [
        "message", "message", "function_call", "function_call_output",
    ]  # fmt: skip
    assert (items[0].content[0].type, items[0].content[0].text) == ("input_text", "a")
    assert items[1].id == "msg_own"
    assert len({item.id for item in items}) == 4
    assert listed(first.id) == items[::-1]
    assert listed(first.id, order="asc", limit=1) == items
    later = listed(second.id, order="asc")
    assert [item.type for item in later[:4]] == [item.type for item in items]
    assert later[-1].content[0].text == "and then?"
    assert len(later) == 4 + len(first.output) + 1
    page = client.responses.input_items.list(first.id, limit=3)
    assert (len(page.data), page.has_more) == (3, True)
    for query in ("limit=0", "limit=x", "order=up", "after=nobody"):
        refused = httpx.get(f"{url}/v1/responses/{first.id}/input_items?{query}")
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == query.partition("=")[0]
    assert httpx.get(f"{url}/v1/responses/resp_none/input_items").status_code == 404


def test_what_is_not_to_be_stored_is_not(client: openai.OpenAI) -> None:
    found = client.responses.create(**GREEDY, store=False)
    assert found.output_text
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(found.id)


def test_a_prompt_that_is_too_long_is_said_in_the_words_that_agents_know(
    client: openai.OpenAI,
) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 512") as caught:
        client.responses.create(**{**ASKED, "input": "long " * CONTEXT})
    assert caught.value.code == "context_length_exceeded"
