"""The terminal chat's models: those on this machine, and those that the catalogue can fetch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from edgeserve.async_llm import AsyncLLM
from edgeserve.config import Config
from edgeserve.engine_options import EngineFields, EngineOptions
from edgeserve.engine_size import token_bytes
from edgeserve.frozen import frozen
from edgeserve.loader.catalog import Catalog, CatalogEntry, CatalogFile
from edgeserve.loader.discovery import FoundModel
from edgeserve.loader.gguf import read_gguf
from edgeserve.loader.machine import available_memory, resident_memory
from edgeserve.loader.machine_notes import MachineNotes
from edgeserve.loader.model_files import ModelFiles
from edgeserve.loader.store import ModelStore
from edgeserve.models import FAMILIES, build_plan
from edgeserve.tui.client import LoadProgress, OfferedModel
from edgeserve.tui.model_shelf import Report, ShelvedModel

_BESIDE_BYTES = 512 << 20
"""Of a model beside its weights, at least: a small context, a step's room, its vocabulary."""
_USUAL_CONTEXT = 32768
_SPARE_BYTES = 1 << 30


class LocalShelf:
    """A ModelShelf (tui/model_shelf.py). `fields` are what every model is loaded with."""

    def __init__(self, config: Config, catalog: Catalog, fields: EngineFields) -> None:
        self._config = config
        self._catalog = catalog
        self._store = ModelStore(config, catalog)
        self._fields = fields
        self._accepted: set[str] = set()

    def models(self) -> Sequence[OfferedModel]:
        # A model that is loaded now makes room for the one that is chosen.
        room = available_memory() + (resident_memory() or 0)
        here = [self._present(found, room) for found in self._store.models()]
        names = {model.name for model in here}
        return [*here, *self._known(names, room)]

    def accept_license(self, name: str) -> None:
        entry = self._entry(name)
        if entry is not None:
            self._accepted.add(entry.name)

    def fetch(self, name: str, report: Report) -> ShelvedModel:
        files = self._store.obtain(name, _Reporting(report), self._is_accepted)
        file = read_gguf(files.path)
        options = EngineOptions(**self._fields)
        plan = build_plan(file.metadata, file.tensors, max_model_len=options.max_model_len)
        tokens = min(plan.max_position, _USUAL_CONTEXT)
        cache_bytes = tokens * token_bytes(plan, options)
        return _Shelved(name, files, file.total_bytes, cache_bytes, self._config, self._fields)

    def memory_bytes(self) -> int | None:
        return resident_memory()

    @cached_property
    def _bandwidth(self) -> float:
        return MachineNotes(self._config.cache_dir).read_bandwidth_bytes_per_s()

    def _is_accepted(self, entry: CatalogEntry) -> bool:
        return entry.name in self._accepted

    def _entry(self, name: str) -> CatalogEntry | None:
        if name.lower().startswith("hf:"):
            return self._catalog.from_hub(name.split(":")[1])
        return self._catalog.find(name.partition(":")[0])

    def _present(self, found: FoundModel, room: int) -> OfferedModel:
        entry = self._entry(found.name)
        file = None if entry is None else entry.file(found.quant)
        note = found.note
        if not note and found.architecture is not None and found.architecture not in FAMILIES:
            note = f"its architecture, {found.architecture}, cannot be run yet"
        needed = found.size_bytes + _BESIDE_BYTES
        if entry is not None and file is not None:
            needed = entry.memory_bytes(file)
        return OfferedModel(
            name=found.name,
            title=found.name if entry is None else entry.title,
            here=True,
            size_bytes=found.size_bytes,
            fits=needed <= room,
            tokens_per_s=self._speed(file, found.size_bytes),
            owner="" if found.program == "edgeserve" else found.program,
            license="" if entry is None else entry.license.name,
            note=note or ("" if entry is None else entry.note),
        )

    def _known(self, here: set[str], room: int) -> Iterator[OfferedModel]:
        for entry in self._catalog.entries:
            file = entry.files[0]
            if entry.name not in here:
                yield OfferedModel(
                    name=entry.name,
                    title=entry.title,
                    here=False,
                    size_bytes=file.size_bytes,
                    fits=entry.memory_bytes(file) <= room,
                    tokens_per_s=self._speed(file, file.size_bytes),
                    license=entry.license.name,
                    note=entry.note,
                )

    def _speed(self, file: CatalogFile | None, size_bytes: int) -> float:
        return self._bandwidth / max(1, size_bytes if file is None else file.bytes_per_token)


@frozen
class _Shelved:
    """A ShelvedModel. `cache_bytes` hold its context, or a usual one."""

    name: str
    files: ModelFiles
    size_bytes: int
    cache_bytes: int
    config: Config
    fields: EngineFields

    @property
    def note(self) -> str:
        return "" if self.files.entry is None else self.files.entry.note

    def fits_beside(self) -> bool:
        # An engine takes at most half of what is available for keys and values.
        return available_memory() >= self.size_bytes + 2 * self.cache_bytes + _SPARE_BYTES

    async def load(self) -> AsyncLLM:
        return await AsyncLLM.create(self.files, config=self.config, **self.fields)


class _Reporting:
    """The loader's Progress as the chat's."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._label = ""
        self._total: int | None = None

    def begin(self, label: str, total_bytes: int | None) -> None:
        self._label, self._total = label, total_bytes
        self.update(0)

    def update(self, done_bytes: int) -> None:
        self._report(LoadProgress("download", done_bytes, self._total, self._label))

    def end(self) -> None:
        self._label, self._total = "", None

    def say(self, line: str) -> None:
        self._report(LoadProgress("download", 0, None, line))
