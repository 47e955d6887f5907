"""`edgeserve info`: what a model is, and whether it fits this machine. Reads the header only."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from edgeserve.config import Config
from edgeserve.errors import ModelNotFoundError
from edgeserve.loader.catalog import CatalogEntry, load_catalog
from edgeserve.loader.gguf import read_gguf
from edgeserve.loader.machine import available_memory
from edgeserve.loader.recommend import human_size
from edgeserve.loader.sampling_defaults import sampling_defaults
from edgeserve.loader.store import ModelFiles, ModelStore
from edgeserve.loader.summary import KV_DTYPES, ModelSummary, summarize
from edgeserve.types import SamplingDefaults

DESCRIPTION = """\
Print what a model is: architecture, tensor types, context, default sampling, the bytes that its
cache takes per token, and how much of its context fits into this machine's memory.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a path or a name, as for `edgeserve pull`")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace, config: Config) -> int:
    catalog = load_catalog()
    files = ModelStore(config, catalog).find(args.model)
    if files is None:
        entry = catalog.find(args.model.partition(":")[0])
        raise ModelNotFoundError(_not_here(args.model, entry))
    model = read_gguf(files.path)
    summary = summarize(model)
    sampling = sampling_defaults(model.metadata, files.entry)
    available = available_memory()
    if args.json:
        print(json.dumps(_as_dict(files, summary, sampling, available), indent=2))
        return 0
    rows = list(_rows(files, summary, sampling, available))
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        print(f"{label.ljust(width)}  {text}")
    return 0


def _not_here(name: str, entry: CatalogEntry | None) -> str:
    what = ""
    if entry is not None:
        file = entry.files[0]
        what = (
            f" ({entry.title}, {file.quant}, {human_size(file.size_bytes)}, {entry.license.name}, "
            f"{human_size(entry.memory_bytes(file))} of memory)"
        )
    return f"{name}{what} is not on this machine; to fetch it: edgeserve pull {name}"


def _rows(
    files: ModelFiles, summary: ModelSummary, sampling: SamplingDefaults, available: int
) -> Iterator[tuple[str, str]]:
    yield "model", summary.name
    yield "file", str(files.path) + (f" and {len(files.parts) - 1} more" * (len(files.parts) > 1))
    yield "architecture", f"{summary.architecture}, {_or_unknown(summary.block_count)} layers"
    yield "parameters", f"{summary.parameters:,}"
    yield "size", human_size(summary.size_bytes)
    yield "tensor types", _types(summary)
    yield "context", f"{_or_unknown(summary.context_length)} tokens"
    yield "KV cache", _kv(summary)
    yield "memory", _fit(summary, available)
    yield "tokenizer", f"{summary.tokenizer or 'none'}, {_or_unknown(summary.vocabulary)} tokens"
    yield "chat template", "yes" if summary.has_template else "no: it continues text"
    yield "sampling", _sampling(sampling)
    yield "license", _license(summary, files.entry)
    if files.entry is not None and files.entry.note:
        yield "note", files.entry.note


def _or_unknown(number: int | None) -> str:
    return "an unknown number of" if number is None else f"{number:,}"


def _types(summary: ModelSummary) -> str:
    return ", ".join(
        f"{name} in {count.tensors} ({human_size(count.num_bytes)})"
        for name, count in summary.tensor_types.items()
    )


def _kv(summary: ModelSummary) -> str:
    if summary.kv_elements is None:
        return "unknown: the file does not give its heads"
    each = ", ".join(f"{summary.kv_bytes_per_token(dtype):,} ({dtype})" for dtype in KV_DTYPES)
    some = f"; less beyond {summary.window:,} tokens, the window" if summary.window else ""
    return f"bytes per token: {each}{some}"


def fitting_context(summary: ModelSummary, available: int) -> int | None:
    """How many tokens of f16 cache fit beside the weights, at most the trained context."""
    per_token = summary.kv_bytes_per_token()
    if per_token is None or summary.context_length is None:
        return None
    room = available - summary.size_bytes
    fitting = max(0, room) // per_token if per_token else summary.context_length
    return min(fitting, summary.context_length)


def _fit(summary: ModelSummary, available: int) -> str:
    have = f"{human_size(available)} available"
    tokens = fitting_context(summary, available)
    if summary.size_bytes > available or tokens == 0:
        return f"does not fit: the weights alone take {human_size(summary.size_bytes)}, {have}"
    if tokens is None:
        return f"the weights fit: {human_size(summary.size_bytes)}, {have}"
    if tokens == summary.context_length:
        return f"fits with its whole context, {have}"
    return f"fits with {tokens:,} tokens of context, {have}"


def _sampling(sampling: SamplingDefaults) -> str:
    return (
        f"temperature {sampling.temperature:g}, top_p {sampling.top_p:g}, top_k {sampling.top_k}, "
        f"min_p {sampling.min_p:g}, repetition_penalty {sampling.repetition_penalty:g}; "
        f"from {'our own defaults' if sampling.origin == 'edgeserve' else sampling.origin}"
    )


def _license(summary: ModelSummary, entry: CatalogEntry | None) -> str:
    if entry is not None:
        return f"{entry.license.name}: {entry.license.url}"
    return f"{summary.license}, says the file" if summary.license else "not given by the file"


def _as_dict(
    files: ModelFiles, summary: ModelSummary, sampling: SamplingDefaults, available: int
) -> dict[str, object]:
    return {
        "name": summary.name,
        "paths": [str(part) for part in files.parts],
        "architecture": summary.architecture,
        "block_count": summary.block_count,
        "parameters": summary.parameters,
        "size_bytes": summary.size_bytes,
        "tensor_types": {name: asdict(count) for name, count in summary.tensor_types.items()},
        "context_length": summary.context_length,
        "window": summary.window,
        "kv_bytes_per_token": {dtype: summary.kv_bytes_per_token(dtype) for dtype in KV_DTYPES},
        "available_memory_bytes": available,
        "fitting_context": fitting_context(summary, available),
        "tokenizer": summary.tokenizer,
        "vocabulary": summary.vocabulary,
        "chat_template": summary.has_template,
        "sampling": asdict(sampling),
        "license": files.entry.license.name if files.entry is not None else summary.license,
    }
