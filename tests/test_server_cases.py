"""Hard inputs that other local servers were reported to get wrong, over the whole server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from edgeserve import AsyncLLM

from .raw_http import connected, get, post, reset, until, wait_for
from .server_harness import USER, events_of, real_server, text_of, with_server
from .tiny_models import write_tiny_model

CONTEXT = 4096
CHAT = "/v1/chat/completions"
STRICT = """{% for m in messages %}{% if m.role == 'system' and not loop.first %}\
{{ raise_exception('system comes first') }}{% endif %}{% if m.role == 'user' and not loop.first \
and loop.previtem.role == 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}\
<{{ m.role }}>{{ m.content }}
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
THINKING = """{% for m in messages %}<{{ m.role }}>{{ m.content }}
{% endfor %}{% if add_generation_prompt %}<assistant>{% if enable_thinking %}<think>
{% endif %}{% endif %}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def path(folder: Path) -> Path:
    return write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT)


def made(folder: Path, template: str) -> Path:
    path = folder / f"{abs(hash(template))}.gguf"
    return write_tiny_model(path, "llama", context=CONTEXT, chat_template=template)


# --- templates and prompts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tokenizer", "template", "adds", "expected"),
    [
        ("llama", "{{ bos_token }}{{ messages[0].content }}", True, 1),
        ("llama", "{{ bos_token }}{{ messages[0].content }}", False, 1),
        ("llama", "{{ messages[0].content }}", True, 1),
        ("llama", "{{ messages[0].content }}", False, 0),
    ],
)
def test_a_prompt_has_one_bos_if_any(
    folder: Path, tokenizer: str, template: str, adds: bool, expected: int
) -> None:
    path = write_tiny_model(
        folder / f"bos{len(template)}{adds}.gguf",
        "gemma3",
        tokenizer=tokenizer,
        chat_template=template,
        metadata={"tokenizer.ggml.add_bos_token": adds},
    )

    async def test(client: httpx.AsyncClient, llm: AsyncLLM) -> None:
        output = await llm.chat("hi", max_tokens=1)
        bos = llm.model.tokenizer.bos_id
        assert list(output.prompt_token_ids).count(bos) == expected
        assert (output.prompt_token_ids[0] == bos) == (expected == 1)
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        found = (await client.post(CHAT, json=body)).json()
        assert found["usage"]["prompt_tokens"] == len(output.prompt_token_ids)

    with_server(path, test)


@pytest.mark.parametrize("said", ["</think>", "<think>", '<tool_call>{"name": "f"}</tool_call>'])
def test_tags_in_what_the_user_says_are_text(folder: Path, said: str) -> None:
    """What is parsed is what the model says."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        given: Any = [{"role": "user", "content": said}]
        body = {"messages": given, "tools": [tool], "max_tokens": 12, "temperature": 0}
        choice = (await client.post(CHAT, json=body)).json()["choices"][0]
        assert choice["finish_reason"] != "tool_calls"
        assert not choice["message"].get("tool_calls")
        assert not choice["message"].get("reasoning_content")
        shown = (await client.post("/apply-template", json=body)).json()["prompt"]
        assert said in shown

    with_server(made(folder, THINKING), test)


def test_a_late_system_message_stays_where_it_is(folder: Path) -> None:
    """And the prompt before it is unchanged, so that the cache holds."""
    late = {"role": "system", "content": "be brief"}
    before = [*USER, {"role": "assistant", "content": "yes"}]

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        async def prompt(messages: Any, **fields: Any) -> str:
            body = {"messages": messages, "max_tokens": 1, **fields}
            answer = await client.post(CHAT, json=body)
            assert answer.status_code == 200, answer.text
            if late in messages:
                assert "x-edgeserve-adjusted" in answer.headers
            return (await client.post("/apply-template", json=body)).json()["prompt"]

        first = await prompt(before, add_generation_prompt=False, continue_final_message=False)
        rest = (await prompt([*before, late, *USER])).removeprefix(first)
        assert rest.index("<system>\nbe brief\n</system>") < rest.index("the inn")
        twice = await prompt([*USER, *USER])
        assert twice.count("<user>") == 1
        assert twice.count("the inn") == 2

    with_server(made(folder, STRICT), test)


def test_one_tool_among_twenty_that_cannot_be_enforced_is_named(path: Path) -> None:
    def tool(number: int, **schema: Any) -> dict[str, Any]:
        parameters = {"type": "object", "properties": {"q": {"type": "string", **schema}}}
        return {"type": "function", "function": {"name": f"f{number}", "parameters": parameters}}

    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        tools = [tool(number) for number in range(19)]
        body = {"messages": USER, "max_tokens": 1, "tools": [*tools, tool(19, pattern="(?=a)b")]}
        found = await client.post(CHAT, json=body)
        assert found.status_code == 200, found.text
        relaxed = found.headers["x-edgeserve-relaxed"]
        assert "pattern" in relaxed
        assert "f19" in relaxed or "tools[19]" in relaxed
        strict = {**body, "tools": [*tools, tool(19, pattern="(?=a)b")]}
        strict["tools"][19]["function"]["strict"] = True
        refused = await client.post(CHAT, json=strict)
        assert refused.status_code == 400
        assert "pattern" in refused.json()["error"]["message"]

    with_server(path, test)


# --- stops ---------------------------------------------------------------------------------------


def test_each_choice_ends_for_its_own_reason_streamed_as_whole(path: Path) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        body: dict[str, Any] = {"messages": USER, "n": 2, "temperature": 1, "seed": 3}
        body |= {"max_tokens": 24, "ignore_eos": True}
        free = (await client.post(CHAT, json=body)).json()["choices"]
        texts = [choice["message"]["content"] for choice in free]
        stop = next(
            texts[0][at : at + 3] for at in range(8, 20) if texts[0][at : at + 3] not in texts[1]
        )
        whole = (await client.post(CHAT, json={**body, "stop": stop})).json()["choices"]
        assert [choice["finish_reason"] for choice in whole] == ["stop", "length"]
        streamed = await client.post(CHAT, json={**body, "stop": stop, "stream": True})
        events = events_of(streamed.text)
        reasons = {
            choice["index"]: choice["finish_reason"]
            for event in events[:-1]
            for choice in event["choices"]
            if choice["finish_reason"]
        }
        assert reasons == {0: "stop", 1: "length"}
        for number, choice in enumerate(whole):
            assert text_of(events, number) == choice["message"]["content"]
        assert whole[0]["message"]["content"] == texts[0][: texts[0].index(stop)]
        assert whole[1]["message"]["content"] == texts[1]

    with_server(path, test)


# --- the context, and clients that leave ---------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
def test_one_token_past_the_context_is_refused_with_both_numbers(path: Path, streams: bool) -> None:
    async def test(client: httpx.AsyncClient, _: AsyncLLM) -> None:
        body = {"prompt": [5] * (CONTEXT + 1), "max_tokens": 10, "stream": streams}
        found = await client.post("/v1/completions", json=body)
        assert found.status_code == 400
        assert found.headers["content-type"] == "application/json"
        message = found.json()["error"]["message"]
        assert f"{CONTEXT} tokens" in message
        assert f"{CONTEXT + 1} tokens" in message

    with_server(path, test)


@pytest.fixture(scope="module")
def slow(folder: Path) -> Iterator[tuple[str, AsyncLLM]]:
    """A prompt takes this one many steps of 16 tokens."""
    path = write_tiny_model(folder / "long.gguf", "llama", context=40_000)
    with real_server(path, max_num_batched_tokens=16, max_num_seqs=4) as found:
        yield found


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("leave", [reset, lambda connection: connection.close()])
def test_a_client_that_leaves_while_its_prompt_is_read_is_gone(
    slow: tuple[str, AsyncLLM], streams: bool, leave: Any
) -> None:
    url, llm = slow
    engine: Any = llm.model.engine
    short = {"prompt": "the inn", "max_tokens": 8, "temperature": 1, "seed": 2}
    with httpx.Client(base_url=url, timeout=60) as client:
        alone = client.post("/v1/completions", json=short).json()["choices"]
        sampled = engine.stats.num_sampled_tokens
        with connected(url) as connection:
            body = {"prompt": [5 + n % 90 for n in range(39_000)], "stream": streams}
            connection.sendall(post("/v1/completions", body))
            wait_for(lambda: engine.num_sequences == 1)
            leave(connection)
        beside = client.post("/v1/completions", json=short).json()["choices"]
        wait_for(lambda: not engine.has_work)
    assert beside == alone
    assert engine.stats.num_sampled_tokens == sampled + 8  # the prompt was never read to its end
    engine.check()


def test_a_server_that_reads_a_long_prompt_answers_others(slow: tuple[str, AsyncLLM]) -> None:
    url, llm = slow
    engine: Any = llm.model.engine
    with connected(url) as reading, connected(url) as other:
        body = {"prompt": [5 + n % 80 for n in range(39_000)], "stream": True}
        reading.sendall(post("/v1/completions", body))
        wait_for(lambda: engine.num_sequences == 1)
        other.sendall(get("/health"))
        assert b'"ok"' in until(other, b"}")
        assert engine.has_work
    wait_for(lambda: not engine.has_work)
