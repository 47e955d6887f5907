"""/v1/embeddings: what openai-python and LangChain get, and what is refused."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from edgeserve import AsyncLLM

from .engine_harness import VOCAB_SIZE
from .server_harness import with_server
from .tiny_models import write_tiny_model

CONTEXT = 64
URL = "/v1/embeddings"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT)


def test_vectors_are_the_python_apis_in_both_formats(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        expected = await llm.embed(["the inn", "a cat"])
        for model in ({}, {"model": "gpt-4o"}):
            found = await client.post(URL, json={"input": ["the inn", "a cat"], **model})
            body = found.json()
            assert found.status_code == 200
            assert body["object"] == "list"
            assert body["model"] == "tiny"
            num_tokens = sum(len(output.prompt_token_ids) for output in expected)
            assert body["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
            for index, (entry, output) in enumerate(zip(body["data"], expected, strict=True)):
                assert (entry["object"], entry["index"]) == ("embedding", index)
                assert tuple(entry["embedding"]) == output.embedding
        found = await client.post(URL, json={"input": "a cat", "encoding_format": "base64"})
        (entry,) = found.json()["data"]
        exact = np.array(expected[1].embedding, "<f4").tobytes()
        assert b64decode(entry["embedding"], validate=True) == exact

    with_server(path, test, pooling="mean")


def test_all_forms_of_an_input(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        ids = llm.tokenize("the inn")
        (expected,) = await llm.embed("the inn")
        many = 300  # more than a queue of 8 has room for
        for given, count in (
            ("the inn", 1),
            (["the inn"] * many, many),
            (ids, 1),
            ([float(i) for i in ids], 1),
            ([ids, "the inn", ids], 3),
        ):
            body = (await client.post("/embeddings", json={"input": given})).json()
            vectors = {tuple(entry["embedding"]) for entry in body["data"]}
            assert (len(body["data"]), vectors) == (count, {expected.embedding})
            assert body["usage"]["prompt_tokens"] == count * len(ids)

    with_server(path, test, pooling="mean", max_queued_requests=8, max_num_seqs=4)


def test_dimensions_shorten_and_what_is_without_effect_is_named(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        (expected,) = await llm.embed("the inn", dimensions=7)
        body = {"input": "the inn", "dimensions": 7, "user": "somebody", "encoding_format": None}
        found = await client.post(URL, json=body)
        assert tuple(found.json()["data"][0]["embedding"]) == expected.embedding
        assert found.headers["x-edgeserve-ignored"] == "user"

    with_server(path, test, pooling="last")


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "input", "a string"),
        ({"input": None}, "input", "a string"),
        ({"input": ""}, "input", "at least one character"),
        ({"input": []}, "input", "a string"),
        ({"input": [[]]}, "input[0]", "at least one token id"),
        ({"input": ["a", ""]}, "input[1]", "at least one character"),
        ({"input": ["a", 7]}, "input[1]", "a string, or a list"),
        ({"input": {"text": "a"}}, "input", "a string"),
        ({"input": [5, VOCAB_SIZE]}, "input[1]", "check_embedding_ctx_length=False"),
        ({"input": [[5], [6, 100257]]}, "input[1][1]", "check_embedding_ctx_length=False"),
        ({"input": [5, -1]}, "input[1]", "check_embedding_ctx_length=False"),
        ({"input": [5, 1.5]}, "input[1]", "an integer"),
        ({"input": ["a"] * 2049}, "input", "at most 2,048"),
        ({"input": [50] * (CONTEXT + 1)}, "input", "maximum context length is 64 tokens"),
        ({"input": "a", "dimensions": 0}, "dimensions", "at least 1"),
        ({"input": "a", "dimensions": 1.5}, "dimensions", "an integer"),
        ({"input": "a", "dimensions": 100000}, "dimensions", "at most"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "float, base64"),
        ({"input": "a", "priority": 100000}, "priority", "from"),
    ],
)
def test_what_is_refused_is_named(path: Path, body: dict[str, Any], param: str, words: str) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        found = await client.post(URL, json=body)
        error = found.json()["error"]
        assert (found.status_code, error["param"]) == (400, param)
        assert error["type"] == "invalid_request_error"
        assert words in error["message"]

    with_server(path, test, pooling="mean")


def test_a_model_without_pooling_makes_no_vectors_up(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        found = await client.post(URL, json={"input": "the inn"})
        assert found.status_code == 400
        assert "--pooling mean" in found.json()["error"]["message"]

    with_server(path, test)


def test_openai_python_reads_both_formats(path: Path) -> None:
    openai = pytest.importorskip("openai")

    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        expected = [output.embedding for output in await llm.embed(["the inn", "a cat"])]
        async with openai.AsyncOpenAI(
            api_key="any", base_url="http://localhost/v1", http_client=client
        ) as api:
            create = api.embeddings.create
            for fields in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
                found = await create(input=["the inn", "a cat"], model="tiny", **fields)
                vectors = [entry.embedding for entry in found.data]
                if fields.get("encoding_format") == "base64":
                    read = [np.frombuffer(b64decode(text), "<f4") for text in vectors]
                    vectors = [vector.tolist() for vector in read]
                assert [tuple(vector) for vector in vectors] == expected
            with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length"):
                await create(input=[1 << 20], model="tiny")

    with_server(path, test, pooling="mean")


def test_langchain_embeds_texts(path: Path) -> None:
    langchain = pytest.importorskip("langchain_openai")

    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        expected = [list(output.embedding) for output in await llm.embed(["the inn", "a cat"])]
        embeddings = langchain.OpenAIEmbeddings(
            model="tiny",
            api_key="any",
            base_url="http://localhost/v1",
            check_embedding_ctx_length=False,
            http_async_client=client,
        )
        assert await embeddings.aembed_documents(["the inn", "a cat"]) == expected
        assert await embeddings.aembed_query("a cat") == expected[1]

    with_server(path, test, pooling="mean")


def test_a_client_that_goes_away_is_gone_from_the_engine(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        asking = asyncio.ensure_future(client.post(URL, json={"input": [[50] * 60] * 200}))
        while not llm.model.engine.has_work:
            await asyncio.sleep(0)
        asking.cancel()
        answer = await asking  # whoever is cut is told so, and this client is still there
        assert answer.status_code == 503
        assert answer.json()["error"]["message"] == "the server is shutting down"
        while llm.model.engine.has_work:
            await asyncio.sleep(0.01)
        assert llm.stats.load.num_running == llm.stats.load.num_waiting == 0

    with_server(path, test, pooling="mean", max_num_batched_tokens=8, max_num_seqs=2)
