"""What is on this machine, for a server of all of it: headers, memory, files that change."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref
from pathlib import Path

import pytest

from edgeserve import AsyncLLM
from edgeserve.config import Config
from edgeserve.engine_options import EngineFields
from edgeserve.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from edgeserve.loader import gguf
from edgeserve.loader.catalog import load_catalog
from edgeserve.local_models import LocalModels
from edgeserve.requests import Conversation
from edgeserve.types import Constraint

from .tiny_models import write_tiny_model

MAX_BYTES = 200 << 20


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "own").mkdir()
    return Config(tmp_path / "cache", tmp_path / "hub", llama_cpp_dirs=(tmp_path / "own",))


def put(config: Config, name: str, family: str = "llama", *, context: int = 512) -> Path:
    return write_tiny_model(config.llama_cpp_dirs[0] / name, family, context=context)


def library(config: Config, *, max_bytes: int = MAX_BYTES, **fields: object) -> LocalModels:
    given: EngineFields = {"num_threads": 1, **fields}  # type: ignore[typeddict-item]
    models = LocalModels(config, load_catalog(), given, max_bytes=max_bytes, max_queued_requests=8)
    models.models()
    return models


def test_a_header_says_what_the_loaded_model_will_be(config: Config) -> None:
    put(config, "x.gguf", "gemma3")
    models = library(config)

    async def compare() -> None:
        described = models.describe("llamacpp:x.gguf")
        llm = await models.load("llamacpp:x.gguf")
        try:
            assert described.about.facts == llm.facts
            assert described.about.max_model_len == llm.max_model_len == 512
            assert described.about.default_sampling == llm.default_sampling
        finally:
            await llm.close()

    assert [each.name for each in models.models()] == ["llamacpp:x.gguf"]
    asyncio.run(compare())


def test_headers_are_read_once_until_a_file_changes(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(config, "x.gguf")
    models = library(config)
    read: list[Path] = []

    def reading(path: Path) -> gguf.ModelFile:
        read.append(path)
        return gguf.read_gguf(path)

    monkeypatch.setattr("edgeserve.local_models.read_gguf", reading)
    first = models.describe("llamacpp:x.gguf")
    assert models.describe("llamacpp:x.gguf") is first
    assert read == [path]
    put(config, "x.gguf", "qwen2", context=256)
    changed = models.describe("llamacpp:x.gguf").about
    assert (changed.facts["architecture"], changed.max_model_len) == ("qwen2", 256)
    path.write_bytes(b"GGUF" + bytes(40))
    for _ in range(2):
        with pytest.raises(ModelFileError):
            models.describe("llamacpp:x.gguf")
    assert len(read) == 3
    path.unlink()
    with pytest.raises(ModelNotFoundError):
        models.describe("llamacpp:x.gguf")
    assert list(models.models()) == []
    with pytest.raises(ModelNotFoundError):
        asyncio.run(models.load("llamacpp:x.gguf"))


def test_one_that_cannot_be_run_says_why(config: Config) -> None:
    write_tiny_model(config.llama_cpp_dirs[0] / "x.gguf", "llama", written_as="elsewhere")
    with pytest.raises(UnsupportedModelError, match="elsewhere"):
        library(config).describe("llamacpp:x.gguf")


def test_memory_is_weights_and_what_keys_and_values_may_take(config: Config) -> None:
    path = put(config, "x.gguf", context=131_072)
    size = os.path.getsize(path)
    beside = size + (64 << 20)
    token = 2 * 2 * 2 * 16 * 2  # keys and values of two layers of two heads, 16 wide, f16

    def described(max_bytes: int = MAX_BYTES, **fields: object) -> tuple[int, int]:
        found = library(config, max_bytes=max_bytes, **fields).describe("llamacpp:x.gguf")
        return found.num_bytes - beside, found.about.max_model_len

    room = MAX_BYTES - beside
    assert described() == (room // 4, min(131_072, room // 4 // token // 16 * 16))
    assert described(beside + 1_000_000) == (1_000_000, 1_000_000 // token // 16 * 16)
    assert described(beside + 10_000_000) == (16_384 * token, 16_384)
    assert described(beside - 5) == (1024 * token, 1024)  # more than there is: it never loads
    assert described(max_model_len=512, max_num_seqs=4) == (4 * 512 * token, 512)
    assert described(kv_cache_memory=3_000_000) == (3_000_000, 3_000_000 // token // 16 * 16)


def test_a_context_that_is_asked_of_all_is_no_more_than_each_has(config: Config) -> None:
    put(config, "x.gguf", context=256)
    models = library(config, max_model_len=4096)
    assert models.describe("llamacpp:x.gguf").about.max_model_len == 256

    async def load() -> None:
        llm: AsyncLLM = await models.load("llamacpp:x.gguf")
        await llm.close()

    asyncio.run(load())


def test_a_closed_model_is_gone_at_once(config: Config) -> None:
    """A quarter of a million tokens in Python are not left to the garbage collector."""
    put(config, "x.gguf")
    models = library(config)

    async def load_and_close() -> list[weakref.ref[object]]:
        llm = await models.load("llamacpp:x.gguf")
        messages: Conversation = [{"role": "user", "content": "the inn"}]
        await llm.chat(messages, max_tokens=2)
        await llm.generate("the", max_tokens=2, constraint=Constraint("regex", "a+"))
        await llm.close()
        return [weakref.ref(llm.model.engine), weakref.ref(llm.model.tokenizer)]

    gc.collect()
    gc.disable()
    try:
        kept = [found() is not None for found in asyncio.run(load_and_close())]
    finally:
        gc.enable()
    assert kept == [False, False]
