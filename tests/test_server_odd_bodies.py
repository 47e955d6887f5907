"""Whatever a field of a body holds: an answer, or a 400 in few words that names the field, or both
numbers of a prompt that is too long."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM

from .server_harness import USER, with_server
from .tiny_models import write_tiny_model

CHAT_ROUTE = "/v1/chat/completions"
LONG = "x" * 100_000
ODD: list[Any] = [
    5, -1, 1.5, 10**30, True, "", "x", LONG, [], [None], [["a"]], [5], ["x"], {}, {"a": {"b": []}},
    {"type": "x"}, {"type": ["x"]}, [{"type": "x"}], [{"role": "user", "content": {}}],
]  # fmt: skip
COMMON = (
    "model stream temperature top_p top_k min_p typical_p seed stop logit_bias tools tool_choice "
    "parallel_tool_calls metadata user repetition_penalty presence_penalty dry_multiplier "
    "dry_sequence_breakers mirostat samplers xtc_probability min_tokens stop_token_ids ignore_eos "
    "priority return_progress chat_template_kwargs"
)
CHAT = (
    "messages max_tokens max_completion_tokens n logprobs top_logprobs response_format json_schema "
    "guided_json guided_regex guided_choice guided_grammar grammar structured_outputs functions "
    "function_call stream_options reasoning_effort reasoning_budget add_generation_prompt"
)
COMPLETION = "prompt suffix echo best_of n logprobs max_tokens n_predict parse_special"
RESPONSE = (
    "input instructions previous_response_id text reasoning include max_output_tokens truncation "
    "store background conversation prompt max_tool_calls top_logprobs"
)
MESSAGE = "messages system thinking stop_sequences output_config context_management max_tokens"
ROUTES: list[tuple[str, dict[str, Any], str]] = [
    (CHAT_ROUTE, {"messages": USER, "max_tokens": 1}, f"{COMMON} {CHAT}"),
    ("/v1/completions", {"prompt": "the", "max_tokens": 1}, f"{COMMON} {COMPLETION}"),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 1}, f"{COMMON} {RESPONSE}"),
    ("/v1/messages", {"messages": USER, "max_tokens": 1}, f"{COMMON} {MESSAGE}"),
    ("/v1/embeddings", {"input": "hi"}, "input model encoding_format dimensions user"),
    ("/tokenize", {"content": "hi"}, "content add_special parse_special with_pieces prompt"),
    ("/detokenize", {"tokens": [5]}, "tokens"),
    ("/apply-template", {"messages": USER}, "messages tools chat_template_kwargs"),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("m") / "tiny.gguf", "llama", context=256)


def bodies(base: dict[str, Any], fields: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for field in fields.split():
        for value in ODD:
            yield field, {**base, field: value}


@pytest.mark.parametrize(("route", "base", "fields"), ROUTES, ids=[r for r, _, _ in ROUTES])
def test_any_value_of_any_field(path: Path, route: str, base: dict[str, Any], fields: str) -> None:
    async def ask(client: httpx.AsyncClient, field: str, body: dict[str, Any]) -> str | None:
        found = await client.post(route, json=body)
        if found.status_code == 200:
            return None
        what = f"{field} = {json.dumps(body[field])[:80]}: {found.status_code} {found.text[:200]}"
        if found.status_code not in ({400, 404} if field == "model" else {400}):
            return what
        error = found.json()["error"]
        named = field in f"{error.get('param')} {error['message']}" or "256" in error["message"]
        return None if named and error["type"] and len(found.content) < 2500 else what

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        asked = list(bodies(base, fields))
        wrong: list[str | None] = []
        for at in range(0, len(asked), 32):
            few = (ask(client, field, body) for field, body in asked[at : at + 32])
            wrong += await asyncio.gather(*few)
        assert "\n".join(filter(None, wrong)) == ""

    with_server(path, test, pooling="mean")


TOO_LONG = "a" * 1_100_000


@pytest.mark.parametrize(
    ("route", "body", "said"),
    [
        (CHAT_ROUTE, {"guided_grammar": TOO_LONG}, "guided_grammar"),
        (CHAT_ROUTE, {"grammar": TOO_LONG}, "grammar"),
        (CHAT_ROUTE, {"guided_regex": TOO_LONG}, "guided_regex"),
        (CHAT_ROUTE, {"functions": [None]}, "functions[0] = None"),
        (CHAT_ROUTE, {"logit_bias": {"5": "x"}}, "logit_bias[5] = 'x': must be a number"),
        ("/v1/messages", {"stop_sequences": ["a"] * 65}, "stop_sequences = 65: must be at most 64"),
        ("/v1/messages", {"system": 5}, "system = 5: must be a string, or a list of texts"),
        ("/v1/messages", {"system": [{"type": "text"}]}, "system[0].text = None: must be a string"),
    ],
)
def test_what_is_wrong_is_said_by_the_clients_own_word(
    path: Path, route: str, body: dict[str, Any], said: str
) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        found = await client.post(route, json={"messages": USER, "max_tokens": 1, **body})
        error = found.json()["error"]
        assert found.status_code == 400
        assert said in (error.get("param"), error["message"]) or error["message"].startswith(said)

    with_server(path, test)
