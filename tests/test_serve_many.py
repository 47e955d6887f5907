"""Many models behind one address: streams while they load, over real sockets as a program."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from edgeserve import AsyncLLM
from edgeserve.commands.durations import parse_duration
from edgeserve.errors import ModelFileError
from edgeserve.server.app import build_app
from edgeserve.server.context import ServerContext
from edgeserve.server.library import Described, ListedModel, ModelFacts
from edgeserve.server.many_models import ManyModels
from edgeserve.server.residency import ResidencyLimits
from edgeserve.server.sse import Pings
from edgeserve.types import SamplingDefaults

from .serve_program import Program
from .server_harness import USER, Overheard, events_of, settled, text_of
from .tiny_models import write_tiny_model

BODY: dict[str, Any] = {"messages": USER, "max_tokens": 4, "seed": 1}
BROKEN = ModelFileError("general.architecture", "is broken")


# --- while a model loads -------------------------------------------------------------------------


class SlowLibrary:
    """One tiny model, that is loaded when `arrives` is set, or fails."""

    def __init__(self, path: Path, *, fails: bool = False) -> None:
        self.path = path
        self.fails = fails
        self.begun = asyncio.Event()
        self.arrives = asyncio.Event()

    def models(self) -> list[ListedModel]:
        return [ListedModel("own/tiny", 1)]

    def describe(self, name: str) -> Described:
        assert name == "own/tiny"
        return Described(ModelFacts({}, 64, SamplingDefaults()), 5)

    async def load(self, name: str) -> AsyncLLM:
        assert name == "own/tiny"
        self.begun.set()
        await self.arrives.wait()
        if self.fails:
            raise BROKEN
        return await AsyncLLM.create(str(self.path), num_threads=1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf", "llama", context=128)


@asynccontextmanager
async def client_of(library: SlowLibrary) -> AsyncIterator[tuple[httpx.AsyncClient, Overheard]]:
    models = ManyModels(library, ResidencyLimits(10))
    app = Overheard(build_app(ServerContext(models, pings=Pings(0.01, 0.01))))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)  # type: ignore[arg-type]
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", timeout=60
    ) as client:
        yield client, app
    await models.close()


def ask_while_it_loads(path: Path, url: str, body: Any, *, fails: bool = False) -> httpx.Response:
    async def ask() -> httpx.Response:
        library = SlowLibrary(path, fails=fails)
        async with client_of(library) as (client, heard):
            asking = asyncio.ensure_future(client.post(url, json=body))
            await library.begun.wait()
            if body.get("stream"):
                await heard.bodies(2)
            else:
                await settled()
            assert not asking.done()
            library.arrives.set()
            return await asking

    return asyncio.run(ask())


CHATS = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions")
GIVEN = {
    "/v1/responses": {"input": "the inn", "max_output_tokens": 4, "seed": 1},
    "/v1/completions": {"prompt": "the inn", "max_tokens": 4, "seed": 1},
}
PINGS = {"/v1/messages": 'event: ping\ndata: {"type":"ping"}\n\n'}


@pytest.mark.parametrize("url", CHATS)
def test_streams_show_signs_of_life_while_a_model_loads(path: Path, url: str) -> None:
    given = GIVEN.get(url, BODY)
    body = {**given, "stream": True, "user": "u"}
    found = ask_while_it_loads(path, url, body)
    assert found.status_code == 200
    assert found.text.startswith(PINGS.get(url, ": ping\n\n") * 2)
    if url == "/v1/chat/completions":
        assert ": x-edgeserve-ignored: user\n\n" in found.text
        whole = ask_while_it_loads(path, url, given).json()
        assert text_of(events_of(found.text)) == whole["choices"][0]["message"]["content"]


@pytest.mark.parametrize("url", CHATS)
def test_a_load_that_fails_is_said_in_the_stream_or_by_a_status(path: Path, url: str) -> None:
    given = GIVEN.get(url, BODY)
    late = ask_while_it_loads(path, url, {**given, "stream": True}, fails=True)
    assert late.status_code == 200
    assert "general.architecture" in late.text.split("data: ")[-1]
    whole = ask_while_it_loads(path, url, given, fails=True)
    assert whole.status_code == 500
    assert "general.architecture" in whole.json()["error"]["message"]


@pytest.mark.parametrize("url", ["/tokenize", "/v1/messages/count_tokens"])
def test_other_routes_wait(path: Path, url: str) -> None:
    body = {"content": "the inn"} if url == "/tokenize" else BODY
    assert ask_while_it_loads(path, url, body).status_code == 200


def test_what_is_wrong_in_a_late_stream_is_said_there(path: Path) -> None:
    body = {**BODY, "stream": True, "temperature": -1}
    found = ask_while_it_loads(path, "/v1/chat/completions", body)
    assert "temperature" in events_of(found.text)[-1]["error"]["message"]


# --- the program ---------------------------------------------------------------------------------


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[Program, str]]:
    """`edgeserve serve` with the models of a folder and no others."""
    none = folder / "none"
    environment = {
        "LLAMA_CACHE": str(folder / "models"),
        "HF_HUB_CACHE": str(none),
        "OLLAMA_MODELS": str(none),
        "HOME": str(none),
    }
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        program = Program(list(arguments), folder / "cache")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    try:
        yield program, program.until(r"is ready at (\S+)/v1")
    finally:
        program.process.kill()
        program.process.wait()
        assert program.process.stderr is not None
        program.process.stderr.close()


def states(client: httpx.Client) -> dict[str, str]:
    data = client.get("/v1/models").json()["data"]
    return {card["id"]: card["meta"]["state"] for card in data}


def test_two_models_in_memory_for_one(tmp_path: Path) -> None:
    """Each is loaded for whoever asks, in the other's place; one that answers is not disturbed."""
    a, b = "llamacpp:a.gguf", "llamacpp:deep/b.gguf"
    (tmp_path / "models" / "deep").mkdir(parents=True)
    write_tiny_model(tmp_path / "models" / "a.gguf", "llama", context=20_000)
    write_tiny_model(tmp_path / "models" / "deep" / "b.gguf", "qwen2", context=256)
    arguments = ("--max-memory", "100M", "--model-alias", f"claude-*={b}", "--no-disk-cache")
    with (
        serving(tmp_path, *arguments) as (program, url),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        assert f"edgeserve: serves {a}, {b}\n" in program.said
        assert client.get("/health").json() == {"status": "ok"}
        cards = client.get("/v1/models").json()["data"]
        assert {card["id"] for card in cards} == {a, b}
        assert cards[1]["meta"]["architecture"] == "qwen2"
        assert (cards[1]["max_model_len"], cards[1]["meta"]["n_ctx_train"]) == (256, 256)
        assert {card["meta"]["state"] for card in cards} == {"available"}
        assert client.get(f"/v1/models/{b}").json()["meta"]["default_sampling"]["temperature"]

        assert chat(client, a)["model"] == a
        assert states(client) == {a: "loaded", b: "available"}
        with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as openai_client:
            chunks = openai_client.chat.completions.create(
                model="claude-any",
                messages=USER,  # type: ignore[arg-type]
                max_tokens=4,
                stream=True,
            )
            assert {chunk.model for chunk in chunks} == {b}
        assert states(client) == {b: "loaded", a: "available"}
        assert chat(client, "")["model"] == b

        unknown = client.post("/v1/chat/completions", json={**BODY, "model": "x"})
        assert unknown.status_code == 404
        assert unknown.json()["error"]["code"] == "model_not_found"
        assert a in unknown.json()["error"]["message"]

        long = {**BODY, "model": a, "max_tokens": None, "ignore_eos": True, "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=long) as answer:
            lines = answer.iter_lines()
            next(lines)
            with pytest.raises(httpx.ReadTimeout):  # the memory is another's
                client.post("/v1/chat/completions", json={**BODY, "model": b}, timeout=0.3)
            assert states(client)[a] == "loaded"
            assert sum(next(lines).startswith("data: {") for _ in range(100)) == 50
        assert chat(client, b)["model"] == b

        (tmp_path / "models" / "a.gguf").unlink()
        (tmp_path / "models" / "c.gguf").write_bytes(
            b"GGUF" + (3).to_bytes(4, "little") + bytes(40)
        )
        gone = client.post("/v1/chat/completions", json={**BODY, "model": a})
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")
        damaged = client.post("/v1/chat/completions", json={**BODY, "model": "llamacpp:c.gguf"})
        assert damaged.status_code == 500
        assert damaged.json()["error"]["code"] == "model_not_loaded"
        assert "edgeserve_model_state" in client.get("/metrics").text
        assert program.end(signal.SIGTERM) == 0
    assert f"model={a} unloaded" in program.said


def chat(client: httpx.Client, model: str) -> Any:
    found = client.post("/v1/chat/completions", json={**BODY, "model": model})
    assert found.status_code == 200, found.text
    return json.loads(found.text)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--draft-model", "smollm2"], "--draft-model"),
        (["x.gguf", "--max-memory", "1G"], "--max-memory"),
        (["x.gguf", "--keep-alive", "-1"], "--keep-alive"),
        (["--keep-alive", "soon"], "soon"),
    ],
)
def test_options_that_do_not_belong_are_named(
    tmp_path: Path, arguments: list[str], named: str
) -> None:
    program = Program(arguments, tmp_path)
    assert program.end(signal.SIGCONT) == 2
    assert named in program.said
    assert program.process.stderr is not None
    program.process.stderr.close()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("-1", float("inf")), ("0", 0), ("90", 90), ("10m", 600), ("1.5h", 5400), ("2 D", 172800)],
)
def test_durations_are_read_as_people_type_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
