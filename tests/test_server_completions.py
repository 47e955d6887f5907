"""/v1/completions and /infill: raw prompts, echo, legacy logprobs, filling in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM

from .server_harness import events_of, with_server
from .tiny_models import write_tiny_model

ASKED: dict[str, Any] = {"prompt": "the inn", "temperature": 0, "max_tokens": 6}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=128)


async def ask(client: httpx.AsyncClient, url: str = "/v1/completions", **body: Any) -> Any:
    found = await client.post(url, json=body)
    assert found.status_code == 200, found.text
    return found.json()


def test_a_raw_prompt_is_continued_as_by_the_python_api(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        prompt = "the <|im_end|> inn"
        alone = await llm.generate(prompt, temperature=0, max_tokens=6)
        found = await ask(client, **{**ASKED, "prompt": prompt})
        assert found["object"] == "text_completion"
        assert found["choices"][0]["text"] == alone.text
        assert found["usage"]["prompt_tokens"] == len(alone.prompt_token_ids)
        plain = await ask(client, **{**ASKED, "prompt": prompt, "parse_special": False})
        assert plain["usage"]["prompt_tokens"] > found["usage"]["prompt_tokens"]
        ids = await ask(client, **{**ASKED, "prompt": list(alone.prompt_token_ids)})
        assert ids["choices"][0]["text"] == alone.text

    with_server(path, test)


def test_streams_come_to_the_whole_and_prompts_keep_their_index(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        body = {**ASKED, "prompt": ["the", "on and", "inn"], "n": 2, "temperature": 1, "seed": 3}
        whole = (await ask(client, **body))["choices"]
        given = {**body, "stream": True, "stream_options": {"include_usage": True}}
        events = events_of((await client.post("/v1/completions", json=given)).text)
        assert events[-1] == "[DONE]"
        assert events[-2]["usage"]["completion_tokens"] > 0
        for choice in whole:
            own = [
                e["choices"][0] for e in events[:-2] if e["choices"][0]["index"] == choice["index"]
            ]
            assert "".join(chunk["text"] for chunk in own) == choice["text"]
            assert own[-1]["finish_reason"] == choice["finish_reason"]

    with_server(path, test)


def test_evaluation_harnesses_get_the_prompts_logprobs(path: Path) -> None:
    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        ids = llm.tokenize("the inn and on")
        alone = await llm.generate(
            {"prompt_token_ids": ids}, temperature=0, max_tokens=1, prompt_logprobs=2, logprobs=2
        )
        assert alone.prompt_logprobs is not None
        for max_tokens in (0, 1):
            body = {"prompt": ids, "echo": True, "logprobs": 2, "temperature": 0}
            choice = (await ask(client, **body, max_tokens=max_tokens))["choices"][0]
            shown = choice["logprobs"]
            count = len(ids) + max_tokens
            assert {len(shown[key]) for key in shown} == {count}
            assert shown["token_logprobs"][0] is None
            assert shown["top_logprobs"][0] is None
            for at, entry in enumerate(alone.prompt_logprobs[1:], start=1):
                assert entry is not None
                chosen = next(iter(entry.values()))
                assert shown["tokens"][at] == chosen.decoded_token
                assert shown["token_logprobs"][at] == chosen.logprob
                best = max(logprob.logprob for logprob in entry.values())
                assert max(shown["top_logprobs"][at].values()) == best
            assert shown["text_offset"][0] == 0
            assert shown["text_offset"][1] == len(shown["tokens"][0])
            text = llm.detokenize(ids) + (alone.text if max_tokens else "")
            assert choice["text"] == text

    with_server(path, test)


def test_echo_streams_the_prompt_first(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        body = {**ASKED, "echo": True}
        whole = (await ask(client, **body))["choices"][0]["text"]
        events = events_of((await client.post("/completions", json={**body, "stream": True})).text)
        pieces = [event["choices"][0]["text"] for event in events[:-1]]
        assert pieces[0] == "the inn"
        assert "".join(pieces) == whole

    with_server(path, test)


def test_logprobs_of_a_stream_are_the_wholes(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        body = {**ASKED, "prompt": ["the inn", "on"], "logprobs": 2, "n": 2}
        body |= {"temperature": 1, "seed": 3}
        whole = (await ask(client, **body))["choices"]
        events = events_of((await client.post("/completions", json={**body, "stream": True})).text)
        for choice in whole:
            chunks = [e["choices"][0] for e in events[:-1]]
            own = [chunk for chunk in chunks if chunk["index"] == choice["index"]]
            shown = [chunk["logprobs"] for chunk in own if chunk["logprobs"] is not None]
            for key, values in choice["logprobs"].items():
                assert [value for each in shown for value in each[key]] == values
            assert "".join(chunk["text"] for chunk in own) == choice["text"]
            assert own[-1]["finish_reason"] == choice["finish_reason"]

    with_server(path, test)


def test_a_model_that_fills_nothing_in_says_so(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        for url, body in (
            ("/v1/completions", {**ASKED, "suffix": " b"}),
            ("/infill", {"input_prefix": "a", "input_suffix": " b"}),
        ):
            found = await client.post(url, json=body)
            assert found.status_code == 400
            assert found.json()["error"]["param"] == "suffix"

    with_server(path, test)


def test_filling_in_goes_by_the_models_own_tokens(tmp_path: Path) -> None:
    ids = {"fim_pre": 5, "fim_suf": 6, "fim_mid": 7}
    metadata = {f"tokenizer.ggml.{name}_token_id": value for name, value in ids.items()}
    path = write_tiny_model(tmp_path / "fim.gguf", "llama", context=128, metadata=metadata)

    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        def text(piece: str) -> list[int]:
            return llm.tokenize(piece, add_special=False, parse_special=False)

        prompt = [5, *text("the <|im_end|>"), 6, *text(" on"), 7]
        alone = await llm.generate({"prompt_token_ids": prompt}, temperature=0, max_tokens=6)
        body = {**ASKED, "prompt": "the <|im_end|>", "suffix": " on"}
        assert (await ask(client, **body))["choices"][0]["text"] == alone.text
        begun = await llm.generate(
            {"prompt_token_ids": [*prompt, *text("a")]}, temperature=0, max_tokens=6
        )
        infill = {"input_prefix": "the <|im_end|>", "input_suffix": " on", "prompt": "a"}
        found = await ask(client, "/infill", **infill, temperature=0, max_tokens=6)
        assert found["choices"][0]["text"] == begun.text

    with_server(path, test)
