"""What `edgeserve run` says once after the embedded default, which only proves the installation."""

from __future__ import annotations

import sys

from edgeserve.config import Config


def advise_once(model: str, config: Config) -> None:
    """Which model this machine should run instead, in one line; the first time only."""
    from edgeserve.loader.sources import looks_like_path

    if looks_like_path(model):
        return
    from edgeserve.loader.catalog import EMBEDDED_DEFAULT, load_catalog
    from edgeserve.loader.machine import available_memory
    from edgeserve.loader.machine_notes import MachineNotes
    from edgeserve.loader.recommend import recommend

    catalog = load_catalog()
    entry = catalog.find(model)
    if entry is None or entry.name != EMBEDDED_DEFAULT:
        return
    notes = MachineNotes(config.cache_dir)
    if not notes.first_time("advice on models"):
        return
    advice = recommend(catalog, available_memory(), notes.read_bandwidth_bytes_per_s())
    print(
        f"\n{entry.title} proves the installation and is no chat model. {advice.line()}",
        file=sys.stderr,
    )
