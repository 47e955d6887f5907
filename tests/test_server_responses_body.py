"""/v1/responses: what of a body is accepted, what it becomes, and what is refused how."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM
from edgeserve.errors import InvalidRequestError
from edgeserve.server.custom_input import CustomInput
from edgeserve.server.errors import ApiError
from edgeserve.server.fields import Fields
from edgeserve.server.responses_body import ResponsesBody, responses_body
from edgeserve.server.responses_store import ResponseStore
from edgeserve.server.turn import Thinking, ToolChoice
from edgeserve.types import Constraint

from .server_harness import with_server
from .tiny_models import write_tiny_model

LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
PATCH = {"type": "custom", "name": "patch", "format": {"type": "text"}}
SEARCH = {"type": "web_search_preview"}


def read(given: Any = "hi", store: ResponseStore | None = None, **fields: Any) -> ResponsesBody:
    body = Fields(json.loads(json.dumps({"input": given, **fields})))
    return responses_body(body, store or ResponseStore(), vocab_size=300)


def ignored(**fields: Any) -> tuple[str, ...]:
    body = Fields({"input": "hi", **fields})
    responses_body(body, ResponseStore(), vocab_size=300)
    return body.unread()


# --- items ---------------------------------------------------------------------------------------


def test_a_string_is_a_users_message_after_the_instructions() -> None:
    assert read(instructions="be kind").task.messages == (
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": "hi"},
    )


def test_what_an_assistant_did_at_once_is_one_message() -> None:
    items = [
        {"role": "developer", "content": "be brief"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "I look"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": 1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "***"},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
        {
            "type": "custom_tool_call_output",
            "call_id": "c2",
            "output": [{"type": "input_text", "text": "ok"}, {"type": "input_image"}],
        },
        {"role": "assistant", "content": "done"},
    ]
    body = read(items)
    calls = [
        {"name": "look", "arguments": '{"at": 1}'},
        {"name": "patch", "arguments": {"input": "***"}},
    ]
    assert body.task.messages == (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "I look",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": call_id, "type": "function", "function": call}
                for call_id, call in zip(("c1", "c2"), calls, strict=True)
            ],
        },
        {"role": "tool", "content": "sun", "tool_call_id": "c1"},
        {"role": "tool", "content": "ok[image omitted]", "tool_call_id": "c2"},
        {"role": "assistant", "content": "done"},
    )
    assert body.task.adjusted == ("input[7].output[1].type: [image omitted]",)


def test_what_ran_elsewhere_is_left_out_and_listed() -> None:
    task = read(
        [
            {"type": "web_search_call", "id": "ws", "status": "completed"},
            {"role": "user", "content": "hi"},
        ]
    ).task
    assert [message["role"] for message in task.messages] == ["user"]
    assert task.adjusted == ("input[0].type: web_search_call left out",)


def test_references_are_looked_up() -> None:
    store = ResponseStore()
    store.put("resp_1", {}, ({"id": "msg_1", "role": "assistant", "content": "kept"},))
    for reference in ({"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}):
        messages = read([reference, {"role": "user", "content": "hi"}], store).task.messages
        assert messages[0].get("content") == "kept"
    with pytest.raises(ApiError, match="msg_2"):
        read([{"type": "item_reference", "id": "msg_2"}], store)


# --- tools ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "look"}, ToolChoice("required", ("look",))),
        ({"type": "custom", "name": "patch"}, ToolChoice("required", ("patch",))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [LOOK, SEARCH]},
            ToolChoice("auto", ("look",)),
        ),
    ],
)
def test_choices_of_a_tool(choice: Any, expected: ToolChoice) -> None:
    assert read(tools=[LOOK, SEARCH, PATCH], tool_choice=choice).task.tool_choice == expected


def test_a_custom_tool_has_one_argument() -> None:
    body = read(tools=[LOOK, PATCH])
    assert body.tools.custom == {"patch"}
    assert dict(body.task.tools[1].parameters) == {
        "type": "object",
        "properties": {"input": {"type": "string"}},
        "required": ["input"],
    }


def test_tools_in_a_namespace_are_told_by_their_full_names() -> None:
    space = {"type": "namespace", "name": "mcp__files__", "tools": [LOOK, SEARCH]}
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    body = read([{**call, "namespace": "mcp__files__"}], tools=[space, LOOK])
    assert [tool.name for tool in body.task.tools] == ["mcp__files__look", "look"]
    assert body.tools.spaces == {"mcp__files__look": ("mcp__files__", "look")}
    assert "mcp__files__look" in str(body.task.messages[0])


def test_a_custom_tools_grammar_is_told_to_the_model_and_held_to() -> None:
    for syntax, definition in (("lark", "start: /x+/"), ("regex", "(?:x+)")):
        form = {"type": "grammar", "syntax": syntax, "definition": definition}
        body = read(tools=[{**PATCH, "format": form}])
        tool = body.task.tools[0]
        assert definition in tool.description
        assert "pattern" not in str(tool.as_openai())
        assert tool.input_pattern is not None
        assert re.fullmatch(tool.input_pattern, "xx")
        assert body.task.adjusted == ()


def test_a_custom_tools_grammar_that_cannot_be_enforced_is_said_to_be_told_only() -> None:
    form = {"type": "grammar", "syntax": "lark", "definition": 'start: "(" start? ")"'}
    body = read(tools=[{**PATCH, "format": form}])
    assert body.task.tools[0].input_pattern is None
    assert body.task.adjusted == (
        "tools[0].format.definition: told to the model, not enforced: "
        "start stands within itself, which no pattern can hold",
    )


def test_tools_that_run_elsewhere_are_left_out_unless_forced() -> None:
    assert ignored(tools=[SEARCH, LOOK]) == ("tools[0].type (web_search_preview)",)
    assert not read(tools=[SEARCH], tool_choice="auto").task.tools
    for choice in ("required", SEARCH):
        with pytest.raises(InvalidRequestError, match="tool_choice"):
            read(tools=[SEARCH], tool_choice=choice)


def test_a_choice_without_tools_is_as_if_absent() -> None:
    assert read(tools=[], tool_choice="required").task.tool_choice == ToolChoice()


# --- other fields --------------------------------------------------------------------------------


def test_effort_none_is_no_thinking() -> None:
    assert read(reasoning={"effort": "none"}).task.thinking == Thinking(enabled=False)
    assert read(reasoning={"effort": "low"}).task.thinking == Thinking(effort="low")
    assert read(reasoning={"effort": None}).task.thinking == Thinking()


def test_formats_of_the_text() -> None:
    schema = {"type": "object"}
    form = {"type": "json_schema", "name": "x", "schema": schema, "strict": True}
    task = read(text={"format": form}).task
    assert task.params.constraint == Constraint.json_schema(schema)
    assert task.constraint_field == "text.format.schema"
    assert read(text={"format": {"type": "text"}}).task.params.constraint is None
    found = read(text={"format": {"type": "json_object"}}).task
    assert found.params.constraint == Constraint.json_object()


def test_what_has_no_effect_is_listed() -> None:
    found = ignored(
        reasoning={"effort": "low", "summary": "auto"},
        text={"verbosity": "low"},
        include=["reasoning.encrypted_content", "web_search_call.results"],
        prompt_cache_key="x",
        store=False,
        parallel_tool_calls=False,
    )
    assert set(found) == {
        "reasoning.summary",
        "text.verbosity",
        "include[1] (web_search_call.results)",
        "prompt_cache_key",
    }


# --- the store -----------------------------------------------------------------------------------


def test_the_store_is_bounded_and_forgets_the_least_recently_used() -> None:
    store = ResponseStore(max_bytes=1000)
    for number in range(3):
        store.put(f"resp_{number}", {"text": "x" * 300}, ())
    store.get("resp_0")
    store.put("resp_3", {"text": "x" * 300}, ())
    for kept in ("resp_0", "resp_2", "resp_3"):
        store.get(kept)
    with pytest.raises(ApiError, match="resp_1"):
        store.get("resp_1")
    store.put("resp_4", {"text": "x" * 2000}, ())
    with pytest.raises(ApiError):
        store.get("resp_4")
    store.delete("resp_0")
    store.put("resp_5", {"text": "x" * 300}, ())
    store.get("resp_2")


# --- free text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "plain", 'a "b"\n\\c', "é😀x", "*** Begin\n+\tx", "\\u0041", "\x7f/"]
)
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_free_text_is_read_from_any_pieces(text: str, ascii_only: bool, size: int) -> None:
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    reader = CustomInput()
    pieces = [reader.read(arguments[at : at + size]) for at in range(0, len(arguments), size)]
    assert "".join(pieces) + reader.finish() == text == reader.text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("just text", "just text"),
        ('{"other": 1}', '{"other": 1}'),
        ('{"input": "cut', "cut"),
        ('{"input": "half \\ud83d x"}', "half \ufffd x"),
        ('{"input": "odd \\q"}', "odd \\q"),
    ],
)
def test_what_is_no_such_call_loses_nothing(arguments: str, expected: str) -> None:
    reader = CustomInput()
    assert "".join(map(reader.read, arguments)) + reader.finish() == expected


# --- refusals ------------------------------------------------------------------------------------

HOSTILE: list[Any] = [
    {"input": [{"type": "reasoning", "summary": []}]},
    {"input": [{"type": "web_search_call"}, {"type": "compaction"}]},
    {},
    {"input": None},
    {"input": []},
    {"input": 5},
    {"input": [5]},
    {"input": [{"type": "mesage"}]},
    {"input": [{"type": 5}]},
    {"input": [{"role": "user"}]},
    {"input": [{"role": "tool", "content": "x"}]},
    {"input": [{"role": {}, "content": "x"}]},
    {"input": [{"role": "user", "content": 5}]},
    {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
    {"input": [{"type": "function_call", "arguments": "{}"}]},
    {"input": [{"type": "function_call", "name": "x", "arguments": 5}]},
    {"input": [{"type": "function_call", "name": "x", "call_id": 5}]},
    {"input": [{"type": "function_call_output", "output": 5}]},
    {"input": [{"type": "custom_tool_call", "input": "x"}]},
    {"input": [{"type": "custom_tool_call", "name": "x", "input": 5}]},
    {"input": [{"type": "reasoning", "content": "x"}]},
    {"input": [{"type": "reasoning", "encrypted_content": 5}]},
    {"input": [{"type": "item_reference", "id": "nobody"}]},
    {"input": [{"type": "item_reference"}]},
    {"input": "x", "instructions": 5},
    {"input": "x", "previous_response_id": "nobody"},
    {"input": "x", "previous_response_id": 5},
    {"input": "x", "background": True},
    {"input": "x", "conversation": "conv_1"},
    {"input": "x", "prompt": {"id": "p"}},
    {"input": "x", "max_output_tokens": 0},
    {"input": "x", "top_logprobs": 21},
    {"input": "x", "include": [5]},
    {"input": "x", "reasoning": "much"},
    {"input": "x", "reasoning": {"effort": "much"}},
    {"input": "x", "text": {"format": {"type": "xml"}}},
    {"input": "x", "text": {"format": {"type": "json_schema"}}},
    {"input": "x", "tools": [5]},
    {"input": "x", "tools": [{"type": 5}]},
    {"input": "x", "tools": [{"type": "function"}]},
    {"input": "x", "tools": [{"type": "function", "name": "x", "parameters": 5}]},
    {"input": "x", "tools": [LOOK, LOOK]},
    {"input": "x", "tools": [{"type": "custom", "name": "x", "format": {"type": 5}}]},
    {"input": "x", "tools": [LOOK], "tool_choice": 5},
    {"input": "x", "tools": [LOOK], "tool_choice": "some"},
    {"input": "x", "tools": [LOOK], "tool_choice": {"type": "function"}},
    {"input": "x", "tools": [LOOK], "tool_choice": {"type": "function", "name": "y"}},
    {"input": "x", "metadata": 5},
    {"input": "x", "store": "yes"},
    {"input": "x", "stream": 5},
    [],
]


def test_bodies_that_are_wrong_are_refused_by_name(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", "llama", context=64)

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        async def asked(body: Any) -> None:
            found = await client.post("/v1/responses", json=body)
            assert found.status_code == 400, (body, found.text)
            error = found.json()["error"]
            assert error["type"] == "invalid_request_error"
            assert error["message"]

        await asyncio.gather(*(asked(body) for body in HOSTILE))

    with_server(path, test)
