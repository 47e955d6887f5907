"""The OpenAPI document: valid, of all routes and no other, and what it describes is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from openapi_spec_validator import validate
from schemathesis import Case, checks

from edgeserve.sampling_params import INTEGER_RANGES, NUMBER_RANGES
from edgeserve.server.app import routes_of
from edgeserve.server.context import ServerContext
from edgeserve.server.models import OneModel

from .server_harness import SECONDS, client_of, real_server
from .tiny_models import write_tiny_model

NUM_BODIES = 6
FILLING_IN = {
    f"tokenizer.ggml.{name}_token_id": token_id
    for name, token_id in {"fim_pre": 5, "fim_suf": 6, "fim_mid": 7}.items()
}
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]


def asked(path: str) -> httpx.Response:
    """Of a server whose model is still loading."""

    async def one() -> httpx.Response:
        async with client_of(None) as client:
            return await client.get(path)

    return asyncio.run(one())


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return asked("/v1/openapi.json").json()


@contextmanager
def serving(folder: Path, context: int) -> Iterator[str]:
    path = write_tiny_model(folder / "tiny.gguf", "llama", context=context, metadata=FILLING_IN)
    with real_server(path, pooling="mean") as (base, _):
        yield base


def test_it_is_there_before_the_model_is() -> None:
    found = asked("/openapi.json")
    assert found.status_code == 200
    assert found.headers["content-type"] == "application/json"


def test_it_is_valid(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    validate(document)


def test_it_describes_every_route_and_method_and_no_other(document: dict[str, Any]) -> None:
    routes = routes_of(ServerContext(OneModel("tiny", (), created=1)))
    there = {
        (route.path.replace(":path", ""), method.lower())
        for route in routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {
        (path, method) for path, methods in document["paths"].items() for method in methods
    }
    assert described == there


def body_of(document: dict[str, Any], path: str) -> dict[str, Any]:
    return document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]


@pytest.mark.parametrize(
    "path", ["/chat/completions", "/completions", "/infill", "/messages", "/responses"]
)
def test_ranges_are_those_that_are_enforced(document: dict[str, Any], path: str) -> None:
    fields = body_of(document, path)["properties"]
    assert (fields["temperature"]["minimum"], fields["temperature"]["maximum"]) == (0, 100)
    ranged = ("top_p", "presence_penalty", "dry_base", "n", "seed", "repeat_last_n")
    ranges = {name: (low, high) for name, low, high in (*NUMBER_RANGES, *INTEGER_RANGES)}
    for name in ranged:
        assert (fields[name]["minimum"], fields[name]["maximum"]) == ranges[name]


def test_fields_have_a_form_and_nested_ones_are_there(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        if "requestBody" in methods.get("post", {}):
            body = body_of(document, path)
            assert all(body["properties"].values()), path
            assert body["additionalProperties"] is True
    chat = body_of(document, "/chat/completions")["properties"]
    assert chat["stream_options"]["properties"]["include_usage"]["type"] == ["boolean", "null"]
    assert {"functions", "function_call", "top_logprobs", "guided_regex"} <= set(chat)
    assert "stream" not in body_of(document, "/tokenize")["properties"]


def test_examples_are_answered_and_nothing_of_them_is_ignored(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    with serving(tmp_path, context=1024) as url:
        for path, methods in document["paths"].items():
            if "requestBody" not in methods.get("post", {}):
                continue
            for example in body_of(document, path)["examples"]:
                found = httpx.post(f"{url}/v1{path}", json=example, timeout=SECONDS)
                assert found.status_code == 200, (path, example, found.text)
                assert "x-edgeserve-ignored" not in found.headers, (path, found.headers)


def test_bodies_at_random_are_answered_as_described(tmp_path: Path) -> None:
    with serving(tmp_path, context=64) as url:
        schema = schemathesis.openapi.from_url(f"{url}/v1/openapi.json")
        for result in schema.get_all_operations():
            _ask_at_random(result.ok().as_strategy())


def _ask_at_random(cases: SearchStrategy[Case]) -> None:
    @seed(1)
    @settings(
        max_examples=NUM_BODIES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def ask(case: Case) -> None:
        case.call_and_validate(checks=CHECKS, timeout=SECONDS)

    ask()
