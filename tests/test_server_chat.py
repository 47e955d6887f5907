"""/v1/chat/completions: shapes, streams, and the answers of the Python API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM

from .server_harness import USER, events_of, text_of, with_server
from .tiny_models import write_tiny_model

ASKED: dict[str, Any] = {"messages": USER, "temperature": 1, "seed": 3, "max_tokens": 8}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=128)


def test_the_answer_is_the_python_apis(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        found = await client.post("/v1/chat/completions", json=ASKED)
        alone = await llm.chat("the inn", temperature=1, seed=3, max_tokens=8)
        body = found.json()
        choice = body["choices"][0]
        assert found.status_code == 200
        assert choice["message"] == {"role": "assistant", "content": alone.text}
        assert choice["finish_reason"] == alone.outputs[0].finish_reason
        assert body["usage"]["prompt_tokens"] == len(alone.prompt_token_ids)
        assert body["usage"]["completion_tokens"] == len(alone.outputs[0].token_ids)
        assert body["model"] == "tiny"

    with_server(path, test)


def test_a_stream_opens_with_the_role_and_ends_with_reason_timings_and_done(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        whole = (await client.post("/v1/chat/completions", json=ASKED)).json()
        found = await client.post("/v1/chat/completions", json={**ASKED, "stream": True})
        *events, done = events_of(found.text)
        assert found.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert found.headers["cache-control"] == "no-cache"
        assert found.headers["x-accel-buffering"] == "no"
        assert done == "[DONE]"
        first, *middle, last = [event["choices"][0] for event in events]
        assert first["delta"] == {"role": "assistant", "content": ""}
        assert all(choice["delta"]["content"] for choice in middle)
        assert last["delta"] == {}
        assert last["finish_reason"] == whole["choices"][0]["finish_reason"]
        assert events[-1]["timings"]["predicted_n"] == whole["usage"]["completion_tokens"]
        assert text_of(events) == whole["choices"][0]["message"]["content"]
        for key in ("id", "created", "model", "system_fingerprint"):
            assert len({event[key] for event in events}) == 1
        assert not any("usage" in event for event in events)

    with_server(path, test)


@pytest.mark.parametrize("options", [{}, None, {"include_usage": False}, {"include_usage": None}])
def test_no_usage_chunk_without_being_asked(path: Path, options: Any) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        body = {**ASKED, "stream": True, "stream_options": options}
        events = events_of((await client.post("/chat/completions", json=body)).text)
        assert all(event == "[DONE]" or event["choices"] for event in events)

    with_server(path, test)


def test_usage_comes_in_a_last_chunk_of_its_own(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        body = {**ASKED, "stream": True, "stream_options": {"include_usage": True}}
        events = events_of((await client.post("/v1/chat/completions", json=body)).text)
        assert events[-2]["choices"] == []
        assert events[-2]["usage"]["total_tokens"] > events[-2]["usage"]["completion_tokens"]

    with_server(path, test)
