"""`edgeserve cache`: what is kept of prompts on disk, and how to erase it."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence

from edgeserve.cache.disk_folder import DAILY_BYTES, DiskFolder, ModelContents
from edgeserve.config import Config
from edgeserve.loader.recommend import human_size

DESCRIPTION = """\
Print what is kept of prompts on disk, or erase it.

  edgeserve cache            which folder, how much of what, and how much was written today
  edgeserve cache clear      erases it

What models computed of prompts and answers - their keys and values, from which a text can be
worked out - is kept in files that only you can read, so that a prompt which begins the same is not
computed again after a restart. `edgeserve run --no-disk-cache` keeps nothing; EDGESERVE_DISK_CACHE
is how many bytes may be kept, and 0 turns it off.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("show", "clear"), default="show")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace, config: Config) -> int:
    folder = DiskFolder(config.prompts_dir)
    if args.action == "clear":
        freed = folder.clear()
        print(json.dumps({"freed_bytes": freed}) if args.json else f"freed {human_size(freed)}")
        return 0
    models, written = folder.contents(), folder.written_today()
    if args.json:
        print(json.dumps(_as_json(config, models, written), indent=2))
    else:
        print("\n".join(_as_lines(config, models, written)))
    return 0


def _as_lines(config: Config, models: Sequence[ModelContents], written: int) -> Iterator[str]:
    used = human_size(sum(model.num_bytes for model in models))
    bound = f"at most {human_size(config.disk_cache)}" if config.disk_cache else "turned off"
    yield f"folder         {config.prompts_dir}"
    yield f"size           {used}, {bound}"
    yield f"written today  {human_size(written)}, at most {human_size(DAILY_BYTES)}"
    for model in models:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(model.used_s))
        name, kind = model.about.get("model", "(unknown)"), model.about.get("kv_cache_dtype", "")
        size = f"{human_size(model.num_bytes):>8}  {model.num_blocks:>7,} blocks"
        yield f"{size}  {kind:<5} {day}  {name}"


def _as_json(config: Config, models: Sequence[ModelContents], written: int) -> object:
    return {
        "folder": str(config.prompts_dir),
        "size_bytes": sum(model.num_bytes for model in models),
        "bound_bytes": config.disk_cache,
        "written_today_bytes": written,
        "written_a_day_bytes": DAILY_BYTES,
        "models": [
            {
                **model.about,
                "size_bytes": model.num_bytes,
                "blocks": model.num_blocks,
                "used": model.used_s,
            }
            for model in models
        ],
    }
