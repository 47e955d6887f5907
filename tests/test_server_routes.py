"""Paths in every spelling, models, tokens, health, errors of the address."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM
from edgeserve.server.limits import BodyLimits

from .server_harness import USER, client_of, with_server
from .skipping_loop import run_skipping
from .tiny_models import write_tiny_model


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=64)


def loading(method: str, url: str, **given: Any) -> httpx.Response:
    """Asks a server whose model is still loading."""
    context = given.pop("context", {})

    async def one() -> httpx.Response:
        async with client_of(None, **context) as client:
            return await client.request(method, url, **given)

    return asyncio.run(one())


@pytest.mark.parametrize(
    "url",
    [
        "/v1/models",
        "/models",
        "/v1/models/",
        "/v1/models?beta=true",
        "//v1/models",
        "/v1/v1/models",
    ],
)
def test_a_path_has_many_spellings(url: str) -> None:
    assert loading("GET", url).json()["data"][0]["id"] == "tiny"


def test_heads_and_options_are_answered() -> None:
    head = loading("HEAD", "/v1/models")
    assert (head.status_code, head.content) == (200, b"")
    assert loading("OPTIONS", "/v1/models").status_code == 204


@pytest.mark.parametrize(
    ("method", "url", "status"),
    [("GET", "/nowhere", 404), ("GET", "/v1/chat/completions", 405), ("POST", "/v1/models", 405)],
)
def test_a_wrong_address_is_said_in_the_usual_shape(method: str, url: str, status: int) -> None:
    found = loading(method, url)
    assert found.status_code == status
    assert set(found.json()["error"]) == {"message", "type", "param", "code"}


def test_while_loading_health_and_chats_say_503() -> None:
    for found in (
        loading("GET", "/health"),
        loading("POST", "/v1/chat/completions", json={"messages": USER}),
    ):
        assert found.status_code == 503
        assert found.json()["error"]["message"] == "Loading model"
        assert int(found.headers["retry-after"]) > 0


def test_the_root_shows_how_to_ask() -> None:
    text = loading("GET", "/").text
    assert "tiny" in text
    assert "http://localhost/v1" in text
    assert "curl http://localhost/v1/chat/completions" in text


def test_the_root_lists_every_path_as_a_wrong_address_says() -> None:
    assert "; / lists what there is" in loading("GET", "/api/generate").json()["error"]["message"]
    listed = {tuple(line.split()[:2]) for line in loading("GET", "/").text.splitlines()}
    paths = loading("GET", "/openapi.json").json()["paths"]
    there = {(method.upper(), path) for path, item in paths.items() for method in item}
    assert ("POST", "/messages") in there
    assert there <= listed


def test_every_answer_has_an_id_and_a_clients_own_comes_back() -> None:
    assert loading("GET", "/nowhere").headers["x-request-id"].startswith("req_")
    own = {"x-request-id": "mine-7"}
    assert loading("GET", "/health", headers=own).headers["x-request-id"] == "mine-7"


def test_bodies_past_the_limit_are_413() -> None:
    context = {"limits": BodyLimits(max_bytes=1000)}
    for given in ({"content": b" " * 1001}, {"content": _pieces(b" " * 600, b" " * 600)}):
        found = loading("POST", "/v1/chat/completions", context=context, **given)
        assert found.status_code == 413
        assert "--max-body-size" in found.json()["error"]["message"]


async def _pieces(*pieces: bytes) -> Any:
    for piece in pieces:
        yield piece


def test_models_are_found_by_name_alias_and_glob(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        one = (await client.get("/v1/models/tiny")).json()
        assert one["id"] == "tiny"
        assert one["object"] == "model"
        assert one["max_model_len"] == llm.max_model_len
        meta = one["meta"]
        assert (meta["state"], meta["architecture"]) == ("loaded", "llama")
        assert (meta["n_ctx"], meta["n_ctx_train"]) == (64, 64)
        assert meta["size"] > 1000
        assert meta["quant"] == "F32"
        assert meta["default_sampling"]["origin"] == "edgeserve"
        for name in ("tiny", "gpt-4o", "", "default", None):
            body = {"messages": USER, "max_tokens": 1, "model": name}
            found = await client.post("/v1/chat/completions", json=body)
            assert found.json()["model"] == "tiny"

    with_server(path, test)


@pytest.mark.parametrize("name", ["other", "org/other", "TINY"])
def test_unknown_models_are_404_with_the_served_names(path: Path, name: str) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        body = {"messages": USER, "model": name}
        for found in (
            await client.post("/v1/chat/completions", json=body),
            await client.get(f"/v1/models/{name}"),
        ):
            assert found.status_code == 404
            error = found.json()["error"]
            assert error["code"] == "model_not_found"
            assert name in error["message"]
            assert "tiny" in error["message"]

    with_server(path, test)


def test_tokens_there_and_back(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        async def post(url: str, **body: Any) -> Any:
            return (await client.post(url, json=body)).json()

        text = "the <|im_end|> inn 😊"
        ids = (await post("/tokenize", content=text))["tokens"]
        assert ids == llm.tokenize(text, add_special=False)
        plain = (await post("/tokenize", content=text, parse_special=False))["tokens"]
        assert len(plain) > len(ids)
        assert (await post("/detokenize", tokens=plain))["content"] == text
        pieces = (await post("/tokenize", content="the 😊", with_pieces=True))["tokens"]
        assert [piece["id"] for piece in pieces] == llm.tokenize("the 😊", add_special=False)
        whole = b"".join(
            p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"])
            for p in pieces
        )
        assert whole.decode() == "the 😊"
        assert (await post("/tokenize"))["error"]["param"] == "content"
        assert (await post("/detokenize", tokens=[0, -1]))["error"]["param"] == "tokens[1]"
        assert (await post("/detokenize", tokens=[10**9]))["error"]["param"] == "tokens[0]"

    with_server(path, test)


def test_tokens_as_vllm_has_them(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        info = (await client.get("/tokenizer_info")).json()
        tokenizer, template = llm.model.tokenizer, llm.model.template
        assert template is not None
        assert tokenizer.eos_id is not None
        assert info["eos_token"] == tokenizer.token_text(tokenizer.eos_id)
        assert info["chat_template"] == template.source
        text = f"the inn{info['eos_token']}"
        body = {"prompt": text, "add_special_tokens": False}
        found = (await client.post("/tokenize", json=body)).json()
        ids = llm.tokenize(text, add_special=False)
        assert ids[-1] == tokenizer.eos_id
        assert found == {"tokens": ids, "count": len(ids), "max_model_len": llm.max_model_len}
        added = (await client.post("/tokenize", json={"prompt": "the inn"})).json()["tokens"]
        assert added == llm.tokenize("the inn")
        there = (await client.post("/tokenize", json={"prompt": "the inn 😊"})).json()["tokens"]
        back = (await client.post("/detokenize", json={"tokens": there})).json()
        assert back["prompt"] == llm.detokenize(there)
        unknown = await client.get("/tokenizer_info?model=nobody")
        assert unknown.json()["error"]["code"] == "model_not_found"

    with_server(path, test)


def test_a_template_is_applied(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        found = await client.post("/apply-template", json={"messages": USER})
        output = await llm.chat("the inn", max_tokens=1)
        assert found.json() == {"prompt": output.prompt}

    with_server(path, test)


def test_a_body_that_does_not_come_is_408() -> None:
    async def stalling() -> Any:
        yield b'{"messages": '
        await asyncio.sleep(60)

    async def test() -> None:
        async with client_of(None, limits=BodyLimits(max_seconds=50)) as client:
            found = await client.post("/v1/chat/completions", content=stalling())
            assert found.status_code == 408

    run_skipping(test())
