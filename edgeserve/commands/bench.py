"""`edgeserve bench`: how fast a model computes here, beside this machine's limits and llama.cpp."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.config import Config
from edgeserve.errors import InvalidRequestError

if TYPE_CHECKING:
    from edgeserve.bench.session import Options

DESCRIPTION = """\
Measure MODEL on this machine: reading prompts (pp) and decoding (tg), at several depths of
context, and several sequences decoding together; forward passes alone, without sampling and text.

"of read" is the share of a raw read of memory, measured in the same rounds: decoding reads all
weights and the cache for every token. "of int8" is the share of the most int8 products that the
kernel set's instructions give (AVX2: maddubs and madd, which small weights can do without half of).

Nothing else should run meanwhile: a compiler on one core costs half.

`edgeserve bench serve URL` measures a running server under load.
"""
_DEFAULT_ROUNDS = 5
_QUICK_ROUNDS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a path or a name, as for `edgeserve run`")
    parser.add_argument("--quick", action="store_true", help="few and short measures: a minute")
    parser.add_argument("--prefill", type=int, metavar="N", help="tokens of a prompt; 512")
    parser.add_argument("--decode", type=int, metavar="N", help="tokens to decode; 32")
    parser.add_argument("--depths", type=_integers, metavar="N,N", help="0,512,4096")
    parser.add_argument(
        "--sequences", type=_integers, metavar="N,N", help="how many decode together; 1,2,4,8,16,32"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="medians of so many; 5")
    parser.add_argument("--threads", type=int, metavar="N", help="physical cores by default")
    parser.add_argument("--kv-cache-dtype", default="f16", metavar="TYPE", help="f16, q8_0 or q4_0")
    parser.add_argument(
        "--against", choices=["llama.cpp"], help="alternate with it, and print ratios"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a roofline plot as SVG")
    parser.add_argument("--accept-license", action="store_true", help="accept the model's terms")


def _integers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers, as 0,512") from None


def run(args: argparse.Namespace, config: Config) -> int:
    from edgeserve.bench.roofline import roofline_svg
    from edgeserve.bench.screen import lines_of
    from edgeserve.bench.session import bench
    from edgeserve.commands.license import license_gate
    from edgeserve.commands.progress import progress_on
    from edgeserve.loader.store import resolve_model

    for option, path in (("--json", args.json), ("--plot", args.plot)):
        require_folder(option, path)
    options = _options(args, config)
    files = resolve_model(
        args.model,
        config,
        progress=progress_on(sys.stderr, config),
        license_gate=license_gate(args.accept_license),
    )
    name = Path(args.model).name
    report = bench(name, files.path, options, clock=time.perf_counter, say=say())
    for line in lines_of(report):
        print(line)
    if args.json is not None:
        args.json.write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")
    if args.plot is not None:
        args.plot.write_text(roofline_svg(report), encoding="utf-8")
    return 0


def _options(args: argparse.Namespace, config: Config) -> Options:
    from edgeserve.bench.session import Options
    from edgeserve.bench.workload import QUICK, Sizes

    usual, rounds = (QUICK, _QUICK_ROUNDS) if args.quick else (Sizes(), _DEFAULT_ROUNDS)
    if args.against is not None:
        rounds = _DEFAULT_ROUNDS
    return Options(
        sizes=Sizes(
            prefill=usual.prefill if args.prefill is None else args.prefill,
            decode=usual.decode if args.decode is None else args.decode,
            depths=usual.depths if args.depths is None else args.depths,
            sequences=usual.sequences if args.sequences is None else args.sequences,
        ),
        rounds=rounds if args.rounds is None else args.rounds,
        num_threads=args.threads,
        kernels=config.kernels,
        kv_cache_dtype=args.kv_cache_dtype,
        against_llama_cpp=args.against is not None,
    )


def require_folder(option: str, path: Path | None) -> None:
    """Minutes of measuring should not end in a file that cannot be written."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise InvalidRequestError(option, str(path), "a file in a folder that exists")


def say() -> Callable[[str], None]:
    """To people only: standard error, if it is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda _: None
    return lambda line: print(line, file=sys.stderr, flush=True)
