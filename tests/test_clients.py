"""Real clients against a real server: their own packages, whole and streamed, tools and refusals.

Each client's script (tests/clients/) says what it got; the model is tiny and greedy, so that it has
to be what the Python API says.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import anthropic
import numpy as np
import openai
import pydantic
import pytest

from edgeserve import LLM, SamplingParams
from edgeserve.client_settings import CLIENTS, Endpoint

from .client_packages import node_client, python_client, run_client
from .server_harness import real_server
from .tiny_models import write_tiny_model

CONTEXT = 2048
AIDER_CONTEXT = 4096
AIDER_SECONDS = 300  # it imports for ten seconds of a free processor
TEXTS = ["the inn", "a cat"]
USER: list[dict[str, Any]] = [{"role": "user", "content": TEXTS[0]}]


class Weather(pydantic.BaseModel):
    """What the scripts hold answers to as well: of two cities, one."""

    city: Literal["Oslo", "Rome"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return write_tiny_model(folder / "tiny.gguf", "llama", context=CONTEXT)


@pytest.fixture(scope="module")
def url(path: Path) -> Iterator[str]:
    with real_server(path, pooling="mean") as (found, _):
        yield f"{found}/v1"


@pytest.fixture(scope="module")
def expected(path: Path) -> dict[str, Any]:
    """By the Python API: eight tokens of chat, four of completion, vectors."""
    with LLM(str(path), num_threads=1, pooling="mean") as llm:
        chat, longer = (
            llm.chat(USER, SamplingParams(temperature=0, max_tokens=most)).outputs[0]
            for most in (8, 16)
        )
        (raw,) = llm.generate(TEXTS[0], SamplingParams(temperature=0, max_tokens=4))[0].outputs
        return {
            "plain": {
                "content": chat.text,
                "finish_reason": chat.finish_reason,
                "tokens": len(chat.token_ids),
                "calls": [],
            },
            "longer": longer.text,
            "completed": raw.text,
            "embedded": [list(output.embedding) for output in llm.embed(TEXTS)],
        }


def check_call(found: dict[str, Any]) -> None:
    """One call of weather for one of the cities, the same streamed and whole."""
    cities: list[Weather] = []
    for way in (found["whole"], found["streamed"]):
        ((name, arguments),) = way.pop("calls")
        assert name == "weather"
        # Some clients hand out the object, and some write it anew.
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
        cities.append(Weather.model_validate(read))
        assert way["finish_reason"] == "tool_calls"
    assert cities[0] == cities[1]
    assert found["streamed"] == found["whole"]


def test_openai_for_node(url: str, expected: dict[str, Any]) -> None:
    found = run_client(node_client("openai@6.49.0"), "openai_node.cjs", url)
    assert found["models"] == ["tiny"]
    assert found["chats"]["plain"] == {"whole": expected["plain"], "streamed": expected["plain"]}
    check_call(found["chats"]["called"])
    held = found["chats"]["held"]
    assert held["streamed"] == held["whole"]
    Weather.model_validate_json(held["whole"]["content"])
    assert found["completed"] == expected["completed"]
    assert found["responses"] == {
        "whole": expected["longer"],
        "streamed": expected["longer"],
        "last": "response.incomplete",
    }
    assert found["embedded"] == expected["embedded"]
    assert found["stopped"]
    unknown = {"name": "NotFoundError", "status": 404, "code": "model_not_found"}
    overlong = {"name": "BadRequestError", "status": 400, "code": "context_length_exceeded"}
    assert (found["unknown"], found["overlong"]) == (unknown, overlong)


def test_litellm(url: str, expected: dict[str, Any]) -> None:
    found = run_client(python_client("litellm==1.110.2"), "litellm_client.py", url)
    for protocol in ("openai", "anthropic"):
        plain = found[protocol]["plain"]
        assert plain == {"whole": expected["plain"], "streamed": expected["plain"]}
        check_call(found[protocol]["called"])
        assert found[protocol]["overlong"] == "ContextWindowExceededError"
    assert found["embedded"] == expected["embedded"]
    assert found["unknown"] == "NotFoundError"


def test_langchain(url: str, expected: dict[str, Any]) -> None:
    found = run_client(python_client("langchain-openai==1.7.4"), "langchain_client.py", url)
    assert found["plain"] == {"whole": expected["plain"], "streamed": expected["plain"]}
    check_call(found["called"])
    assert found["answered"]["streamed"] == found["answered"]["whole"]
    assert found["responses"] == expected["longer"]
    Weather.model_validate(found["schema"])
    Weather.model_validate(found["function"])
    assert np.allclose(found["embedded"], expected["embedded"], rtol=0, atol=0)


def test_openai_python_reads_classes_and_tools(url: str) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": USER, "temperature": 0}
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        parsed = client.chat.completions.parse(response_format=Weather, **asked)
        found = parsed.choices[0].message.parsed
        assert isinstance(found, Weather)
        with client.chat.completions.stream(response_format=Weather, **asked) as stream:
            streamed = stream.get_final_completion()
        assert streamed.choices[0].message.parsed == found
        tools = [openai.pydantic_function_tool(Weather)]
        called = client.chat.completions.parse(
            tools=tools, tool_choice="required", parallel_tool_calls=False, **asked
        )
        (call,) = called.choices[0].message.tool_calls or ()
        assert call.function.name == "Weather"
        assert isinstance(call.function.parsed_arguments, Weather)
        response = client.responses.parse(
            model="tiny", input=TEXTS[0], temperature=0, text_format=Weather
        )
        assert isinstance(response.output_parsed, Weather)


def test_openai_python_asks_the_same_asynchronously(url: str) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": USER, "temperature": 0}
    tools = [openai.pydantic_function_tool(Weather)]
    calling: dict[str, Any] = {"tools": tools, "tool_choice": "required", **asked}

    async def ask() -> None:
        async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
            chats = client.chat.completions
            parsed = await chats.parse(response_format=Weather, **asked)
            async with chats.stream(response_format=Weather, **asked) as stream:
                streamed = await stream.get_final_completion()
            found = parsed.choices[0].message.parsed
            assert isinstance(found, Weather)
            assert streamed.choices[0].message.parsed == found
            whole = await chats.parse(parallel_tool_calls=False, **calling)
            async with chats.stream(parallel_tool_calls=False, **calling) as stream:
                streamed_call = await stream.get_final_completion()
            calls = [c.choices[0].message.tool_calls or () for c in (whole, streamed_call)]
            functions = [call.function for (call,) in calls]
            assert isinstance(functions[0].parsed_arguments, Weather)
            assert functions[1].arguments == functions[0].arguments

    asyncio.run(ask())


def test_aider_does_what_connect_prints(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = python_client("aider-chat==0.86.2")
    caplog.set_level(logging.INFO, "edgeserve.server")
    path = write_tiny_model(tmp_path / "tiny.gguf", "llama", context=AIDER_CONTEXT)
    (tmp_path / "inn.py").write_text("print('the inn')\n")
    options = "--yes-always --no-git --no-check-update --analytics-disable --message 'the inn'"
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{folder / 'bin'}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # nor does it ask the network for others' prices
    }
    with real_server(path) as (root, _):
        said = CLIENTS["aider"](Endpoint(f"{root}/v1", "tiny", "any", AIDER_CONTEXT)).text
        done = subprocess.run(
            ["sh", "-euc", f"{said.rstrip()} {options} inn.py"],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=AIDER_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    (counted,) = [line for line in done.stdout.splitlines() if line.startswith("Tokens: ")]
    assert counted.endswith(" received.")
    answered = [r.facts for r in caplog.records if hasattr(r, "facts") and "path" in r.facts]
    assert [(fact["path"], fact["status"], fact["stream"]) for fact in answered] == [
        ("/chat/completions", 200, True)
    ]


def test_anthropic_python_calls_tools(url: str) -> None:
    tool = {"name": "weather", "input_schema": Weather.model_json_schema()}
    asked: dict[str, Any] = {
        "model": "tiny",
        "max_tokens": 300,
        "tools": [tool],
        "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        "extra_body": {"temperature": 0},
    }
    root = url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=root, api_key="any", max_retries=0) as client:
        whole = client.messages.create(messages=USER, **asked)
        with client.messages.stream(messages=USER, **asked) as stream:
            streamed = stream.get_final_message()
        (block,) = whole.content
        assert block.type == "tool_use"
        assert [(b.name, b.input) for b in streamed.content] == [(block.name, block.input)]
        Weather.model_validate(block.input)
        assert whole.stop_reason == streamed.stop_reason == "tool_use"
        result = {"type": "tool_result", "tool_use_id": block.id, "content": "rain"}
        history = [
            *USER,
            {"role": "assistant", "content": whole.content},
            {"role": "user", "content": [result]},
        ]
        again = client.messages.create(
            messages=history, **{**asked, "tool_choice": {"type": "none"}}
        )
        assert all(part.type == "text" for part in again.content)
