"""The models on this machine for a server of all of them: names, headers, memory, loading."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgeserve.async_llm import AsyncLLM
from edgeserve.config import Config
from edgeserve.constrained_models import ConstrainedModels
from edgeserve.engine_options import DTYPE_BYTES, EngineFields, EngineOptions
from edgeserve.engine_size import engine_size, shared_cache_bytes
from edgeserve.errors import EdgeServeError, ModelNotFoundError, ModelSourceError
from edgeserve.frozen import frozen
from edgeserve.loader.catalog import Catalog, CatalogEntry
from edgeserve.loader.gguf import ModelFile, read_gguf
from edgeserve.loader.model_files import ModelFiles, parts_beside
from edgeserve.loader.sampling_defaults import sampling_defaults
from edgeserve.loader.sources import CatalogSource, HubSource, parse_source
from edgeserve.loader.store import ModelStore
from edgeserve.model_facts import plan_facts
from edgeserve.models import build_plan
from edgeserve.server.library import Described, ListedModel, ModelFacts

_BESIDE_BYTES = 64 << 20
"""Of a model beside weights, keys and values: its vocabulary in Python, a step's room."""

_State = tuple[tuple[str, int, int], ...]
"""(path, time, size) of a model's files."""


@frozen
class _Header:
    """What a model's files said when they were in `state`, and what to load it with."""

    state: _State
    found: Described | EdgeServeError
    fields: EngineFields


class LocalModels:
    """A ModelLibrary (server/library.py) of all that `edgeserve list` prints. Fetches nothing.

    `max_bytes` are of all models together; one alone gets a part of them for keys and values.
    """

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        fields: EngineFields,
        *,
        max_bytes: int,
        max_queued_requests: int,
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._store = ModelStore(config, catalog)
        self._constrained = ConstrainedModels(config.constrained_dir)
        self._fields = fields
        self._max_bytes = max_bytes
        self._max_queued_requests = max_queued_requests
        self._paths: dict[str, Path] = {}
        self._headers: dict[str, _Header] = {}

    def models(self) -> Sequence[ListedModel]:
        found = self._store.models()
        self._paths = {each.name: each.path for each in found}
        listed: list[ListedModel] = []
        for name, path in self._paths.items():
            try:
                listed.append(ListedModel(name, int(path.stat().st_mtime)))
            except OSError:
                continue  # it has just gone
        return listed

    def describe(self, name: str) -> Described:
        found = self._header(name).found
        if isinstance(found, EdgeServeError):
            raise found.with_traceback(None)
        return found

    async def load(self, name: str) -> AsyncLLM:
        await asyncio.to_thread(self.describe, name)
        return await AsyncLLM.create(
            self._files(name),
            max_queued_requests=self._max_queued_requests,
            config=self._config,
            constrained=self._constrained,
            **self._headers[name].fields,
        )

    def _header(self, name: str) -> _Header:
        files = self._files(name)
        state = _state_of(files)
        kept = self._headers.get(name)
        if kept is None or kept.state != state:
            kept = self._headers[name] = self._read(files, state)
        return kept

    def _files(self, name: str) -> ModelFiles:
        path = self._paths.get(name)
        if path is None:
            raise ModelNotFoundError(f"{name}: there is no such model here")
        return ModelFiles(name, parts_beside(path), self._entry(name))

    def _entry(self, name: str) -> CatalogEntry | None:
        try:
            source = parse_source(name, self._catalog)
        except (ModelSourceError, ModelNotFoundError):
            return None
        match source:
            case CatalogSource():
                return source.entry
            case HubSource():
                return self._catalog.from_hub(source.repo)
            case _:
                return None

    def _read(self, files: ModelFiles, state: _State) -> _Header:
        try:
            file = read_gguf(files.path)
            found, options = self._described(files, file)
        except EdgeServeError as error:
            return _Header(state, error, self._fields)
        sizes: EngineFields = {
            "max_model_len": options.max_model_len,
            "kv_cache_memory": options.kv_cache_memory,
        }
        return _Header(state, found, {**self._fields, **sizes})

    def _described(self, files: ModelFiles, file: ModelFile) -> tuple[Described, EngineOptions]:
        options = EngineOptions(**self._fields)
        asked = options.max_model_len
        plan = build_plan(file.metadata, file.tensors, max_model_len=asked)
        if asked is not None:  # of all models; one may be trained for less
            options = replace(options, max_model_len=min(asked, plan.max_position))
        beside = _weights_bytes(file, options) + _BESIDE_BYTES
        cache = shared_cache_bytes(plan, options, self._max_bytes - beside)
        options = replace(options, kv_cache_memory=cache)
        limits, _ = engine_size(plan, options)
        tokens = file.metadata.values.get("tokenizer.ggml.tokens")
        vocab_size = len(tokens) if isinstance(tokens, Sequence) else None
        about = ModelFacts(
            plan_facts(plan, files.path, vocab_size),
            limits.max_model_len,
            sampling_defaults(file.metadata, files.entry),
        )
        return Described(about, beside + cache), options


def _weights_bytes(file: ModelFile, options: EngineOptions) -> int:
    if options.device != "oracle":
        return file.total_bytes
    elements = sum(math.prod(tensor.shape) for tensor in file.tensors.values())
    return elements * DTYPE_BYTES[options.dtype]


def _state_of(files: ModelFiles) -> _State:
    try:
        states = [(str(path), path.stat()) for path in files.parts]
    except OSError as error:
        raise ModelNotFoundError(f"{files.name}: {files.path} is not there any more") from error
    return tuple((path, state.st_mtime_ns, state.st_size) for path, state in states)
