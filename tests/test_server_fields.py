"""A request's fields, one by one: what is accepted, what it means, and what is refused how."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM

from .server_harness import USER, client_of
from .tiny_models import write_tiny_model

CONTEXT = 64


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT)


@pytest.fixture(scope="module")
def ask(path: Path) -> Any:
    """Asks with a body, as JSON's value or as bytes: the whole response. One model for all."""
    loop = asyncio.new_event_loop()
    llm = loop.run_until_complete(AsyncLLM.create(str(path), num_threads=1))

    def asking(body: Any, url: str = "/v1/chat/completions") -> httpx.Response:
        async def one() -> httpx.Response:
            async with client_of(llm) as client:
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                return await asyncio.wait_for(client.post(url, content=content), 60)

        return loop.run_until_complete(one())

    yield asking
    loop.run_until_complete(llm.close())
    loop.close()


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": USER, "max_tokens": 2, "temperature": 0, **fields}


def error(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 400, response.text
    found = response.json()["error"]
    assert set(found) == {"message", "type", "param", "code"}
    assert found["type"] == "invalid_request_error"
    return found


def finish(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["finish_reason"]


def num_tokens(response: httpx.Response) -> int:
    assert response.status_code == 200, response.text
    return response.json()["usage"]["completion_tokens"]


# --- max_tokens ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [0, -5, 1.5, "5", True])
def test_max_tokens_that_are_refused(ask: Any, name: str, value: Any) -> None:
    found = error(ask({"messages": USER, name: value}))
    assert found["param"] == name
    assert name in found["message"]


def test_no_tokens_are_refused_with_a_way_out(ask: Any) -> None:
    assert "leave it out, or -1 for no limit" in error(ask(chat(max_tokens=0)))["message"]


@pytest.mark.parametrize("value", [-1, 10**9, 2**63, None])
def test_max_tokens_without_effect_fill_the_context(ask: Any, value: Any) -> None:
    found = ask(chat(max_tokens=value, ignore_eos=True))
    assert finish(found) == "length"
    assert found.json()["usage"]["total_tokens"] == CONTEXT


@pytest.mark.parametrize(("value", "expected"), [(1, 1), (5, 5), (5.0, 5)])
def test_max_tokens_are_kept(ask: Any, value: Any, expected: int) -> None:
    assert num_tokens(ask(chat(max_tokens=value, ignore_eos=True))) == expected


def test_the_newer_name_wins(ask: Any) -> None:
    found = ask(chat(max_tokens=3, max_completion_tokens=1, ignore_eos=True))
    assert num_tokens(found) == 1
    assert "x-edgeserve-ignored" not in found.headers


# --- sampling ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", 101),
        ("temperature", True),
        ("temperature", "1"),
        ("top_p", 1.0001),
        ("top_p", -0.1),
        ("min_p", 2),
        ("n", 0),
        ("n", 1000),
        ("n", 1.5),
        ("top_k", 1.5),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("repetition_penalty", 0),
        ("seed", 2**64),
        ("seed", "x"),
        ("min_tokens", -1),
        ("best_of", 2),
        ("stop", 5),
        ("stop", [1]),
        ("stop", ["a"] * 65),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", 5),
        ("ignore_eos", 1),
        ("stream", "yes"),
        ("logprobs", 3),
        ("mirostat", 7),
        ("samplers", ["nonsense"]),
        ("xtc_probability", 2),
        ("dry_base", 0.5),
        ("stream_options", []),
        ("stream_options", {"include_usage": 1}),
        ("tools", {}),
        ("tool_choice", 5),
        ("reasoning_effort", "very"),
        ("chat_template_kwargs", "x"),
        ("priority", 10**6),
    ],
)
def test_values_out_of_range_name_field_and_range(ask: Any, name: str, value: Any) -> None:
    extra = {"tools": [{"type": "function", "function": {"name": "f"}}]} if "choice" in name else {}
    found = error(ask(chat(**{**extra, name: value})))
    assert name.split(".")[0] in found["message"]
    assert found["param"].startswith(name)
    assert "must be" in found["message"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 100),
        ("top_p", 0),
        ("top_k", 0),
        ("top_k", -1),
        ("top_k", 40.0),
        ("repeat_penalty", 1.1),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", None),
        ("n", None),
        ("n", 1.0),
        ("stop", None),
        ("logit_bias", None),
        ("logit_bias", {}),
        ("logprobs", False),
        ("tools", []),
        ("tools", None),
        ("tool_choice", "required"),  # without tools there is no choice
        ("stream", False),
        ("stream_options", {"include_usage": True}),
        ("response_format", {"type": "text"}),
        ("best_of", 1),
        ("mirostat", 2),
        ("dry_multiplier", 0.8),
        ("dynatemp_range", 0.5),
        ("typical_p", 0.9),
        ("top_n_sigma", 1.0),
        ("chat_template_kwargs", {"enable_thinking": False}),
        ("reasoning_effort", "none"),
        ("parallel_tool_calls", True),
    ],
)
def test_values_that_are_fine(ask: Any, name: str, value: Any) -> None:
    found = ask(chat(**{name: value}))
    assert found.status_code == 200, found.text
    assert "x-edgeserve-ignored" not in found.headers


@pytest.mark.parametrize("url", ["/v1/chat/completions", "/v1/completions"])
def test_a_field_named_with_spaces_is_listed_without_those_around(ask: Any, url: str) -> None:
    """A header that begins or ends with a space is none, and would end the connection."""
    found = ask(chat(prompt="a", **{" my own ": 1, "\t": 1, "last ": 1}), url)
    listed = found.headers["x-edgeserve-ignored"]
    assert listed == listed.strip()
    assert listed.endswith("my own , ?, last")


def test_fields_without_effect_are_listed(ask: Any) -> None:
    found = ask(chat(user="me", store=True, metadata={"a": 1}, service_tier="auto", top_logprobs=2))
    assert finish(found)
    listed = found.headers["x-edgeserve-ignored"].split(", ")
    assert listed == ["user", "store", "metadata", "service_tier", "top_logprobs"]


@pytest.mark.parametrize(
    ("bias", "named"),
    [
        ({"999999": -100}, "999999"),
        ({"-3": 5}, "-3"),
        ({"abc": 1}, "abc"),
        ([[999999, 1]], "999999"),
        ([[1]], "logit_bias[0]"),
        ({"1": "x"}, "logit_bias[1]"),
    ],
)
def test_biases_of_no_token_name_the_key(ask: Any, bias: Any, named: str) -> None:
    assert named in error(ask(chat(logit_bias=bias)))["message"]


def test_a_bias_that_is_no_number_names_the_key(ask: Any) -> None:
    body = json.dumps(chat(logit_bias={"5": float("nan")})).encode()
    assert "logit_bias[5]" in error(ask(body))["message"]


@pytest.mark.parametrize("ban", [{"{}": -100}, {"{}": -1000}, [["{}", -100]]])
def test_a_ban_holds(ask: Any, ban: Any) -> None:
    free = ask(chat(logprobs=True, max_tokens=1, ignore_eos=True))
    token = free.json()["choices"][0]["logprobs"]["content"][0]
    ids = ask({"content": token["token"]}, "/tokenize").json()["tokens"]
    assert len(ids) == 1
    bias = json.loads(json.dumps(ban).replace("{}", str(ids[0])))
    banned = ask(chat(logprobs=True, max_tokens=1, ignore_eos=True, logit_bias=bias))
    assert banned.json()["choices"][0]["logprobs"]["content"][0]["token"] != token["token"]


def test_empty_stops_are_dropped_and_listed(ask: Any) -> None:
    plain = ask(chat(max_tokens=8, ignore_eos=True))
    for stop in ("", [""], ["", ""]):
        found = ask(chat(max_tokens=8, ignore_eos=True, stop=stop))
        assert found.json()["choices"] == plain.json()["choices"]
        assert "stop" in found.headers["x-edgeserve-ignored"]


def test_a_stop_is_not_returned(ask: Any) -> None:
    whole = ask(chat(max_tokens=12, ignore_eos=True)).json()["choices"][0]["message"]["content"]
    stop = whole[len(whole) // 2 :][:3]
    found = ask(chat(max_tokens=12, ignore_eos=True, stop=[stop])).json()["choices"][0]
    assert found["message"]["content"] == whole[: whole.index(stop)]
    assert found["finish_reason"] == "stop"


# --- bodies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"messages": ',
        b"[]",
        b'"text"',
        b"\xff\xfe{\x00}\x00",
        b'{"messages": "\xff"}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * 10_000,
        b'{"a":' * 10_000,
        b'{"messages": [{"role": "user", "content": "a"}]} x',
        b'{"messages": NaN',
    ],
)
def test_bodies_that_are_no_request(ask: Any, body: bytes) -> None:
    assert error(ask(body))["message"]


def test_a_byte_order_mark_does_no_harm(ask: Any) -> None:
    assert finish(ask(b"\xef\xbb\xbf" + json.dumps(chat()).encode()))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        None,
        "hello",
        {},
        [5],
        [{}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": 5}],
        [{"role": "wizard", "content": "a"}],
        [{"role": 5, "content": "a"}],
        [{"content": "a"}],
        [{"role": "user", "content": [{"type": "audio", "audio": {}}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "user", "content": [{"type": ["text"]}]}],
        [{"role": "user", "content": ["text"]}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{}]}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": "x"}],
    ],
)
def test_messages_that_are_refused(ask: Any, messages: Any) -> None:
    assert error(ask({"messages": messages, "max_tokens": 1}))["param"].startswith("messages")


def test_a_prompt_past_the_context_gives_both_numbers(ask: Any) -> None:
    messages = [{"role": "user", "content": "a" * 200}]
    for streams in (False, True):
        found = error(ask({"messages": messages, "stream": streams}))
        num = found["message"].split("resulted in ")[1].split()[0]
        assert int(num) > CONTEXT
        assert found["code"] == "context_length_exceeded"
        assert found["message"] == (
            f"This model's maximum context length is {CONTEXT} tokens. "
            f"However, your messages resulted in {num} tokens."
        )


def test_one_token_fits_behind_the_longest_prompt(ask: Any) -> None:
    ids = [5] * (CONTEXT - 1)
    found = ask({"prompt": ids, "max_tokens": 10, "ignore_eos": True}, "/v1/completions")
    assert num_tokens(found) == 1
    assert finish(found) == "length"


# --- raw prompts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        ("", "prompt"),
        ([], "prompt"),
        ([[]], "prompt[0]"),
        (["a", ""], "prompt[1]"),
        ([1, 2, 999999], "prompt[2]"),
        ([1, -1], "prompt[1]"),
        ([[1], [1, -7]], "prompt[1][1]"),
        ([1, "a"], "prompt[1]"),
        (["a", 1], "prompt[1]"),
        ([True], "prompt[0]"),
        (5, "prompt"),
        (None, "prompt"),
        ({"prompt": "a"}, "prompt"),
    ],
)
def test_raw_prompts_that_are_refused_name_the_index(ask: Any, prompt: Any, named: str) -> None:
    assert error(ask({"prompt": prompt, "max_tokens": 1}, "/v1/completions"))["param"] == named


@pytest.mark.parametrize("prompt", ["the inn", ["the inn", "on"], [5, 6, 7], [[5, 6], [7]]])
def test_raw_prompts_in_every_shape(ask: Any, prompt: Any) -> None:
    found = ask({"prompt": prompt, "max_tokens": 2, "n": 2}, "/v1/completions").json()
    num = len(prompt) if isinstance(prompt, list) and not isinstance(prompt[0], int) else 1
    assert [choice["index"] for choice in found["choices"]] == list(range(2 * num))


# --- constraints ---------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": ["x", "y"]}},
    "required": ["a"],
    "additionalProperties": False,
}
NUMBERS = 'root ::= "1" | "2"'


@pytest.mark.parametrize(
    ("field", "pattern"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, "schema"),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, "schema"),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, "schema"),
        ({"json_schema": SCHEMA}, "schema"),
        ({"guided_json": SCHEMA}, "schema"),
        ({"guided_json": json.dumps(SCHEMA)}, "schema"),
        ({"structured_outputs": {"json": SCHEMA}}, "schema"),
        ({"guided_regex": "[12]"}, "[12]"),
        ({"structured_outputs": {"regex": "[12]"}}, "[12]"),
        ({"guided_choice": ["1", "2"]}, "[12]"),
        ({"grammar": NUMBERS}, "[12]"),
        ({"guided_grammar": 'start: "1" | "2"'}, "[12]"),
    ],
)
@pytest.mark.parametrize("url", ["/v1/chat/completions", "/v1/completions"])
def test_answers_are_held_to_what_is_asked(ask: Any, field: Any, pattern: str, url: str) -> None:
    body = {"messages": USER, "prompt": "the", "temperature": 5, "seed": 1, "max_tokens": 40}
    found = ask({**body, **field}, url)
    assert found.status_code == 200, found.text
    choice = found.json()["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    if pattern == "schema":
        assert json.loads(text) in ({"a": "x"}, {"a": "y"})
    else:
        assert re.fullmatch(pattern, text)


def test_any_object_is_an_object(ask: Any) -> None:
    body = chat(response_format={"type": "json_object"}, logit_bias={"5": 1}, max_tokens=40)
    text = ask(body).json()["choices"][0]["message"]["content"]
    assert text.startswith("{")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_regex": "(?=a)b"}, "guided_regex"),
        ({"guided_regex": "(((("}, "guided_regex"),
        ({"grammar": "root ::= other"}, "grammar"),
        ({"guided_json": {"type": "object", "patternProperties": 5}}, "guided_json"),
        ({"guided_json": {"$ref": "http://example.com/x"}}, "guided_json"),
        ({"guided_json": {"enum": []}}, "guided_json"),
        ({"guided_json": [1]}, "guided_json"),
        ({"guided_choice": []}, "guided_choice"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": "json"}, "response_format"),
        ({"guided_regex": "a", "guided_json": {}}, "guided_regex"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_field(ask: Any, fields: Any, param: str) -> None:
    assert error(ask(chat(**fields)))["param"] == param


def test_what_is_found_too_complex_when_it_is_followed_is_the_requests_fault(ask: Any) -> None:
    found = ask(chat(grammar='root ::= "a"{300000}', max_tokens=20))
    assert found.status_code == 400, found.text
    assert "simplify it" in found.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "listed"),
    [
        ({"grammar": ""}, "grammar"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"structured_outputs": {"regex": ""}}, "structured_outputs.regex"),
    ],
)
def test_an_empty_grammar_asks_for_nothing_and_is_listed(
    ask: Any, fields: Any, listed: str
) -> None:
    found = ask(chat(max_tokens=3, **fields))
    assert found.status_code == 200, found.text
    assert listed in found.headers["x-edgeserve-ignored"]


def test_what_of_a_schema_is_not_enforced_is_said(ask: Any) -> None:
    schema = {"type": "string", "format": "no-such-format", "maxLength": 3, "title": "t"}
    found = ask(chat(guided_json=schema, max_tokens=20))
    assert found.status_code == 200, found.text
    assert "format" in found.headers["x-edgeserve-relaxed"]
