"""Known checkpoints: names, licences, where their files come from, what fits in how much memory.

Reads models/catalog.toml and nothing else; downloads nothing and knows no cache folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgeserve.frozen import frozen
from edgeserve.types import SamplingDefaults

EMBEDDED_DEFAULT = "smollm2"
"""The entry that needs only the package index, and proves an installation."""

_CATALOG = Path(__file__).parents[1] / "models" / "catalog.toml"
_WORKING_BYTES = 300_000_000  # arena, tokenizer and interpreter beside weights and KV cache
_USUAL_CONTEXT = 4096


@frozen
class License:
    """Terms of a checkpoint. With `must_accept` they are shown before anything is fetched."""

    name: str
    url: str
    must_accept: bool = False
    summary: str = ""


@frozen
class CatalogFile:
    """One quantisation of a checkpoint. Several `sources` are parts to be joined in order.

    `sha256` is set, and `size_bytes` exact, only for files that need just the package index.
    `bytes_per_token` is what decoding one token reads from memory.
    """

    quant: str
    sources: tuple[str, ...]
    size_bytes: int
    bytes_per_token: int
    sha256: str | None = None

    @property
    def size_is_exact(self) -> bool:
        return self.sha256 is not None


@frozen
class CatalogEntry:
    """A known checkpoint. The first of `files` is the default."""

    name: str
    title: str
    family: str
    license: License
    parameters: int
    context_length: int
    kv_bytes_per_token: int
    chat: bool
    files: tuple[CatalogFile, ...]
    aliases: tuple[str, ...] = ()
    sampling: SamplingDefaults | None = None
    note: str = ""

    @property
    def quants(self) -> tuple[str, ...]:
        return tuple(file.quant for file in self.files)

    def file(self, quant: str | None) -> CatalogFile | None:
        """The file of that quantisation, in any case; the default for None."""
        if quant is None:
            return self.files[0]
        return next((f for f in self.files if f.quant.lower() == quant.lower()), None)

    def memory_bytes(self, file: CatalogFile, context: int = _USUAL_CONTEXT) -> int:
        """What running `file` takes with `context` tokens of f16 cache."""
        tokens = min(context, self.context_length)
        return file.size_bytes + tokens * self.kv_bytes_per_token + _WORKING_BYTES


@frozen
class Recommendation:
    """From this much available memory on, this model is worth running."""

    memory_bytes: int
    entry: CatalogEntry


@frozen
class Catalog:
    """All entries, by name, and the table of recommendations in ascending order."""

    entries: tuple[CatalogEntry, ...]
    recommendations: tuple[Recommendation, ...]

    def find(self, name: str) -> CatalogEntry | None:
        """The entry with this name or alias, in any case."""
        wanted = name.lower()
        for entry in self.entries:
            if wanted == entry.name or wanted in entry.aliases:
                return entry
        return None

    def closest(self, name: str) -> tuple[str, ...]:
        """Names like this one, likeliest first; at most three."""
        import difflib  # for a mistyped name only

        owners = {alias: e.name for e in self.entries for alias in (e.name, *e.aliases)}
        near = difflib.get_close_matches(name.lower(), owners, n=6, cutoff=0.6)
        return tuple(dict.fromkeys(owners[alias] for alias in near))[:3]

    def name_of(self, source: str) -> str | None:
        """The name (with its quantisation, unless default) of the file that comes from there."""
        for entry in self.entries:
            for file in entry.files:
                if file.sources == (source,):
                    return entry.name if file is entry.files[0] else f"{entry.name}:{file.quant}"
        return None

    def from_hub(self, repo: str) -> CatalogEntry | None:
        """The entry whose files come from that hub repository."""
        prefix = f"hf:{repo}:".lower()
        for entry in self.entries:
            if any(s.lower().startswith(prefix) for f in entry.files for s in f.sources):
                return entry
        return None


def load_catalog() -> Catalog:
    """The catalogue that ships with the package."""
    return parse_catalog(_CATALOG.read_text(encoding="utf-8"))


def parse_catalog(text: str) -> Catalog:
    """A catalogue from TOML; keys that an entry does not know are errors."""
    import tomllib

    table = tomllib.loads(text)
    licenses = {key: License(**value) for key, value in table["licenses"].items()}
    entries = tuple(_entry(name, value, licenses) for name, value in table["models"].items())
    by_name = {entry.name: entry for entry in entries}
    recommendations = tuple(
        Recommendation(row["memory_bytes"], by_name[row["model"]])
        for row in table["recommendations"]
    )
    return Catalog(entries, recommendations)


def _entry(name: str, table: Mapping[str, Any], licenses: Mapping[str, License]) -> CatalogEntry:
    fields = dict(table)
    sampling = fields.pop("sampling", None)
    return CatalogEntry(
        name=name,
        license=licenses[fields.pop("license")],
        files=tuple(_file(row) for row in fields.pop("files")),
        aliases=tuple(fields.pop("aliases", ())),
        sampling=None if sampling is None else _sampling(sampling),
        **fields,
    )


def _file(table: Mapping[str, Any]) -> CatalogFile:
    fields = dict(table)
    source: str | list[str] = fields.pop("source")
    sources: Iterable[str] = [source] if isinstance(source, str) else source
    approximate = fields.pop("approximate_bytes", None)
    size = fields.pop("size_bytes", approximate)
    streamed = fields.pop("bytes_per_token", size)
    return CatalogFile(sources=tuple(sources), size_bytes=size, bytes_per_token=streamed, **fields)


def _sampling(table: Mapping[str, Any]) -> SamplingDefaults:
    # A publisher's advice is whole: what it does not name is off, not our own default.
    plain = SamplingDefaults(top_p=1.0, min_p=0.0, origin="the catalogue")
    return replace(plain, **table)
