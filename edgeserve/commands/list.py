"""`edgeserve list`: the models on this machine, whoever keeps them, and those known by name."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from edgeserve.config import Config
from edgeserve.loader.catalog import Catalog, CatalogEntry, load_catalog
from edgeserve.loader.discovery import FoundModel
from edgeserve.loader.recommend import human_size
from edgeserve.loader.store import ModelStore

DESCRIPTION = """\
Print the models on this machine - ours, and those that Hugging Face, Ollama, LM Studio and
llama.cpp keep, which are used where they are - and the known ones that `edgeserve pull` fetches.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace, config: Config) -> int:
    catalog = load_catalog()
    models = ModelStore(config, catalog).models()
    print(_as_json(models, catalog) if args.json else _as_text(models, catalog))
    return 0


def _as_text(models: Sequence[FoundModel], catalog: Catalog) -> str:
    here = {model.name for model in models}
    present = [("ON THIS MACHINE", "SIZE", "QUANT", "FAMILY", "KEPT BY", "")]
    present += [
        (m.name, human_size(m.size_bytes), m.quant or "", m.architecture or "", m.program, m.note)
        for m in models
    ]
    if not models:
        present.append(("(none yet)", "", "", "", "", ""))
    known = [("TO PULL", "SIZE", "QUANT", "FAMILY", "LICENSE", "")]
    known += [_known(entry) for entry in catalog.entries if entry.name not in here]
    return f"{_table(present)}\n\n{_table(known)}"


def _known(entry: CatalogEntry) -> tuple[str, ...]:
    file = entry.files[0]
    size = f"{'' if file.size_is_exact else '~'}{human_size(file.size_bytes)}"
    return (entry.name, size, file.quant, entry.family, entry.license.name, entry.note)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    padded = (map(str.ljust, row, widths) for row in rows)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def _as_json(models: Sequence[FoundModel], catalog: Catalog) -> str:
    present = [
        {
            "name": model.name,
            "path": str(model.path),
            "size_bytes": model.size_bytes,
            "quant": model.quant,
            "family": model.architecture,
            "kept_by": model.program,
            "note": model.note,
        }
        for model in models
    ]
    known = [
        {
            "name": entry.name,
            "title": entry.title,
            "family": entry.family,
            "license": entry.license.name,
            "parameters": entry.parameters,
            "chat": entry.chat,
            "files": [
                {
                    "quant": file.quant,
                    "sources": list(file.sources),
                    "size_bytes": file.size_bytes,
                    "size_is_exact": file.size_is_exact,
                    "memory_bytes": entry.memory_bytes(file),
                }
                for file in entry.files
            ],
        }
        for entry in catalog.entries
    ]
    return json.dumps({"models": present, "catalog": known}, indent=2)
