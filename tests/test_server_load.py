"""More than fits: requests wait or are told to come back, and every answer is as alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM

from .server_harness import with_server
from .tiny_models import write_tiny_model

CONTEXT = 64
BLOCK_BYTES = 2 * 2 * 2 * 32 * 16 * 2  # of the tiny model, for a block of K and V in f16


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT)


def full(seed: int) -> dict[str, Any]:
    """A request that fills the context."""
    prompt = [3 + seed % 50, *range(4, 34)]
    return {"prompt": prompt, "seed": seed, "temperature": 1, "ignore_eos": True}


def test_sixteen_times_more_than_the_pool_holds(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        async def ask(seed: int) -> str:
            found = await client.post("/v1/completions", json=full(seed))
            assert found.status_code == 200, found.text
            assert found.json()["usage"]["total_tokens"] == CONTEXT
            return found.json()["choices"][0]["text"]

        alone = [await ask(seed) for seed in range(0, 64, 8)]
        together = await asyncio.gather(*(ask(seed) for seed in range(64)))
        assert together[::8] == alone
        assert llm.stats.num_preemptions > 0

    with_server(path, test, kv_cache_memory=BLOCK_BYTES * 16)


def test_a_full_queue_is_429_and_says_when_to_come_back(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        asked = [client.post("/v1/completions", json=full(seed)) for seed in range(24)]
        found = await asyncio.gather(*asked)
        statuses = [answer.status_code for answer in found]
        assert set(statuses) == {200, 429}
        refused = next(answer for answer in found if answer.status_code == 429)
        assert int(refused.headers["retry-after"]) > 0
        assert refused.json()["error"]["code"] == "queue_full"
        again = await client.post("/v1/completions", json=full(1))
        assert again.status_code == 200

    with_server(path, test, max_queued_requests=2, max_num_seqs=1)


@pytest.mark.parametrize("streams", [False, True])
def test_one_request_may_have_more_prompts_than_may_wait(path: Path, streams: bool) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        prompts = [[3 + at % 50, 5, 6] for at in range(20)]
        fields: dict[str, Any] = {"temperature": 0, "max_tokens": 3, "ignore_eos": True}

        async def ask(prompt: Any) -> httpx.Response:
            body = {"prompt": prompt, "stream": streams, **fields}
            return await client.post("/v1/completions", json=body)

        alone = [texts_of(await ask(prompt))[0] for prompt in prompts]
        assert texts_of(await ask(prompts)) == dict(enumerate(alone))
        refused = await ask([*prompts, [3] * (CONTEXT + 1)])
        assert refused.status_code == 400, refused.text

    with_server(path, test, max_queued_requests=2, max_num_seqs=4)


def texts_of(found: httpx.Response) -> dict[int, str]:
    """Of each choice, streamed or not."""
    assert found.status_code == 200, found.text
    lines = [found.text]
    if found.headers["content-type"].startswith("text/event-stream"):
        lines = [line[6:] for line in found.text.splitlines() if line.startswith("data: {")]
    texts: dict[int, str] = {}
    for choice in (choice for line in lines for choice in json.loads(line)["choices"]):
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts
