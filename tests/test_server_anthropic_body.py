"""/v1/messages: what of a body is accepted, what it becomes, and what is refused how."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM
from edgeserve.errors import InvalidRequestError
from edgeserve.server.anthropic_body import anthropic_body
from edgeserve.server.fields import Fields
from edgeserve.server.turn import ChatTask, Thinking, ToolChoice
from edgeserve.types import Constraint

from .server_harness import USER, with_server
from .tiny_models import write_tiny_model

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
BILLING = "x-anthropic-billing-header: cc_version=2.1.0.{}; cc_entrypoint=cli; cch={};"
TOOL = {"name": "look", "input_schema": {"type": "object", "properties": {"at": {}}}}


def read(messages: Any = USER, **fields: Any) -> ChatTask:
    body = {"model": "m", "max_tokens": 4, "messages": messages, **fields}
    return anthropic_body(Fields(json.loads(json.dumps(body))), vocab_size=300).task


def said(*blocks: Any, role: str = "user") -> list[dict[str, Any]]:
    return [{"role": role, "content": list(blocks)}]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words, "cache_control": {"type": "ephemeral"}}


# --- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["be kind", [text("be kind")]])
def test_a_system_prompt_comes_first(system: Any) -> None:
    assert read(system=system).messages == (
        {"role": "system", "content": "be kind"},
        *USER,
    )


def test_texts_of_a_message_are_put_together() -> None:
    assert read(said(text("a"), text("b"))).messages == ({"role": "user", "content": "ab"},)


def test_a_system_message_in_the_middle_stays_there() -> None:
    messages = [*USER, {"role": "system", "content": "hm"}, *USER]
    assert list(read(messages).messages) == messages


def test_thoughts_and_calls_reach_the_template_and_sealed_thoughts_do_not() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        text("I look"),
        {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
    ]
    task = read([*USER, *said(*blocks, role="assistant"), *USER])
    assert task.messages[1] == {
        "role": "assistant",
        "content": "I look",
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "look", "arguments": {"at": 1}}}
        ],
    }
    assert task.adjusted == ("messages[1].content[1].type: redacted_thinking left out",)


def test_results_of_tools_are_messages_in_their_place() -> None:
    task = read(
        said(
            {"type": "tool_result", "tool_use_id": "t1", "content": "sun"},
            {"type": "tool_result", "tool_use_id": "t2", "content": [text("a"), IMAGE]},
            {"type": "tool_result", "tool_use_id": "t3", "content": "gone", "is_error": True},
            {"type": "tool_result", "tool_use_id": "t4"},
            text("go on"),
        )
    )
    assert task.messages == (
        {"role": "tool", "content": "sun", "tool_call_id": "t1"},
        {"role": "tool", "content": "a[image omitted]", "tool_call_id": "t2"},
        {"role": "tool", "content": "Error: gone", "tool_call_id": "t3"},
        {"role": "tool", "content": "", "tool_call_id": "t4"},
        {"role": "user", "content": "go on"},
    )
    assert task.adjusted == ("messages[0].content[1].content[1].type: [image omitted]",)


def test_an_older_image_is_left_out_and_a_new_one_refused() -> None:
    assert read([*said(IMAGE), *USER]).messages[0]["content"] == "[image omitted]"
    with pytest.raises(InvalidRequestError, match=r"messages\[1\]\.content\[0\]\.type"):
        read([*USER, *said(IMAGE)])


def test_a_document_of_text_is_read() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "it rains"}
    document = {"type": "document", "title": "News", "source": source}
    assert read(said(document)).messages[0]["content"] == "News\nit rains\n"


def test_an_answer_that_was_begun_is_continued_by_the_turn() -> None:
    assert read([*USER, {"role": "assistant", "content": "It"}]).messages[-1]["content"] == "It"


# --- what changes with every request -------------------------------------------------------------


@pytest.mark.parametrize(
    "system",
    [
        [{"type": "text", "text": BILLING.format(1, 2)}, text("be kind")],
        [{"type": "text", "text": BILLING.format(1, 2) + "\nbe kind"}],
        BILLING.format(1, 2) + "\nbe kind",
        BILLING.format(1, 2) + "\n" + BILLING.format(3, 4) + "\n\nbe kind",
    ],
)
def test_a_billing_line_is_left_out_and_listed(system: Any) -> None:
    task = read(system=system)
    assert task.messages[0] == {"role": "system", "content": "be kind"}
    assert task.adjusted == ("system: a billing line left out",)


def test_such_a_line_further_down_is_text() -> None:
    system = "be kind\n" + BILLING.format(1, 2)
    assert read(system=system).messages[0]["content"] == system


def test_a_billing_line_does_not_cost_the_cache(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", "llama", context=512)

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        usages: list[Any] = []
        for turn in range(3):
            line = {"type": "text", "text": BILLING.format(turn, turn * 37)}
            system = [line, text("be kind to everyone " * 8)]
            body = {"max_tokens": 1, "messages": USER, "system": system}
            found = await client.post("/v1/messages", json=body)
            assert "billing" in found.headers["x-edgeserve-adjusted"]
            usages.append(found.json()["usage"])
        assert usages[0]["cache_read_input_tokens"] == 0
        for usage in usages[1:]:
            assert usage["input_tokens"] <= 16  # a block of the cache

    with_server(path, test)


# --- tools ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ToolChoice("auto")),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "tool", "name": "look"}, ToolChoice("required", ("look",))),
    ],
)
def test_choices_of_a_tool(choice: Any, expected: ToolChoice) -> None:
    task = read(tools=[TOOL], tool_choice=choice)
    assert task.tool_choice == expected
    assert task.parallel_tool_calls
    assert [tool.name for tool in task.tools] == ["look"]
    assert task.tools[0].parameters == TOOL["input_schema"]


def test_one_call_at_a_time() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert not read(tools=[TOOL], tool_choice=choice).parallel_tool_calls


def test_tools_that_run_elsewhere_are_left_out_and_listed() -> None:
    hosted = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    body = Fields({"messages": USER, "tools": [hosted, TOOL]})
    assert [tool.name for tool in anthropic_body(body, vocab_size=3).task.tools] == ["look"]
    assert body.unread() == ("tools[0] (web_search_20250305)",)
    for choice in ({"type": "any"}, {"type": "tool", "name": "web_search"}):
        with pytest.raises(InvalidRequestError, match="tool_choice"):
            read(tools=[hosted], tool_choice=choice)


# --- other fields --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Thinking(enabled=False)),
        ({"thinking": {"type": "disabled"}}, Thinking(enabled=False)),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, Thinking(True, None, 2048)),
        ({"thinking": {"type": "adaptive"}}, Thinking(None)),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
            Thinking(None, "high"),
        ),
    ],
)
def test_thinking(fields: Any, expected: Thinking) -> None:
    assert read(**fields).thinking == expected


def test_a_schema_of_the_answer() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    task = read(output_config={"format": form})
    assert task.params.constraint == Constraint.json_schema({"type": "object"})
    assert task.constraint_field == "output_config.format.schema"


def test_what_has_no_effect_is_listed_and_what_caches_do_is_not() -> None:
    tool = {**TOOL, "cache_control": {"type": "ephemeral"}, "eager_input_streaming": True}
    body = Fields({"messages": said(text("a")), "metadata": {"user_id": "x"}, "tools": [tool]})
    anthropic_body(body, vocab_size=3)
    assert body.unread() == ("metadata",)


HOSTILE: list[Any] = [
    {},
    {"messages": None},
    {"messages": []},
    {"messages": "hi"},
    {"messages": [1]},
    {"messages": [{"role": "user"}]},
    {"messages": [{"role": "tool", "content": "x"}]},
    {"messages": [{"role": ["user"], "content": "x"}]},
    {"messages": [{"role": "user", "content": 5}]},
    {"messages": said({"type": "text"})},
    {"messages": said({"type": "text", "text": 5})},
    {"messages": said({"type": {}})},
    {"messages": said("text")},
    {"messages": said({"type": "tool_use", "name": "x"})},
    {"messages": said({"type": "tool_use", "input": {}}, role="assistant")},
    {"messages": said({"type": "tool_use", "name": "x", "input": "y"}, role="assistant")},
    {"messages": said({"type": "tool_result", "content": 5})},
    {"messages": said({"type": "tool_result", "content": [5]})},
    {"messages": said({"type": "tool_result", "tool_use_id": 5})},
    {"messages": said({"type": "document", "source": 5})},
    {"messages": said({"type": "document"})},
    {"messages": USER, "system": 5},
    {"messages": USER, "system": [5]},
    {"messages": USER, "system": [{"type": "image"}]},
    {"messages": USER, "max_tokens": 0},
    {"messages": USER, "max_tokens": "5"},
    {"messages": USER, "temperature": "hot"},
    {"messages": USER, "stop_sequences": "x"},
    {"messages": USER, "stop_sequences": [5]},
    {"messages": USER, "stop_sequences": ["x"] * 65},
    {"messages": USER, "thinking": "yes"},
    {"messages": USER, "thinking": {"type": "much"}},
    {"messages": USER, "thinking": {"type": "enabled", "budget_tokens": -1}},
    {"messages": USER, "tools": {}},
    {"messages": USER, "tools": [5]},
    {"messages": USER, "tools": [{"input_schema": {}}]},
    {"messages": USER, "tools": [{"name": "x", "input_schema": 5}]},
    {"messages": USER, "tools": [TOOL, TOOL]},
    {"messages": USER, "tools": [{"type": 5, "name": "x"}]},
    {"messages": USER, "tools": [TOOL], "tool_choice": "auto"},
    {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "some"}},
    {"messages": USER, "tools": [TOOL], "tool_choice": {"type": "tool"}},
    {"messages": USER, "output_config": {"effort": 5}},
    {"messages": USER, "output_config": {"format": {"type": "json_schema"}}},
    {"messages": USER, "stream": "yes"},
    {"messages": USER, "model": 5},
    [],
    5,
]


def test_bodies_that_are_wrong_are_refused_by_name(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", "llama", context=64)

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        async def asked(url: str, body: Any) -> None:
            found = await client.post(url, json=body)
            assert found.status_code == 400, (body, found.text)
            error = found.json()
            assert error["type"] == "error"
            assert error["error"]["type"] == "invalid_request_error"
            assert error["error"]["message"]

        urls = ("/v1/messages", "/v1/messages/count_tokens")
        await asyncio.gather(*(asked(url, body) for url in urls for body in HOSTILE))

    with_server(path, test)
