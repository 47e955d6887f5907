"""`edgeserve bench serve`: load on any OpenAI-compatible server, and what its users would feel."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.commands.bench import require_folder, say
from edgeserve.config import Config
from edgeserve.errors import ServerRefusedError

if TYPE_CHECKING:
    from edgeserve.bench.load.session import LoadOptions

DESCRIPTION = """\
Send streamed chats to the OpenAI-compatible server at URL, and measure what its users would feel:
TTFT (until the first text), TPOT (a token after it), ITL (between events), tokens a second, and
goodput: requests a second that kept --slo-ttft and --slo-tpot.

  edgeserve bench serve localhost:8000                    four chats at a time
  edgeserve bench serve URL --rate 2 --slo-ttft 500       two a second, at random (Poisson)
  edgeserve bench serve URL --turns 5 --shared-prefix 400 chats of five turns, one system prompt

What is sent is the same for a --seed. Lengths are in words of about one token each; the report has
the server's own count.
"""
_ASKING_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", help="such as http://127.0.0.1:8000, or with /v1")
    parser.add_argument("--model", metavar="NAME", help="the first that the server lists")
    parser.add_argument("--api-key", metavar="KEY", help="sent as a bearer token")
    pace = parser.add_mutually_exclusive_group()
    pace.add_argument("--concurrency", type=int, default=4, metavar="N", help="chats at a time; 4")
    pace.add_argument("--rate", type=float, metavar="R", help="chats that begin in a second")
    parser.add_argument("--requests", type=int, default=32, metavar="N", help="chats; 32")
    parser.add_argument("--turns", type=int, default=1, metavar="N", help="of each chat; 1")
    parser.add_argument("--warmup", type=int, default=1, metavar="N", help="not measured; 1")
    parser.add_argument(
        "--shared-prefix", type=int, default=0, metavar="N", help="words of a system prompt; 0"
    )
    parser.add_argument("--unique", type=int, default=64, metavar="N", help="own words a turn; 64")
    parser.add_argument("--max-tokens", type=int, default=64, metavar="N", help="of an answer; 64")
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0")
    parser.add_argument(
        "--ignore-eos",
        action="store_true",
        help="answers of full length, on servers that know it: edgeserve, vLLM, llama.cpp",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="0")
    parser.add_argument("--slo-ttft", type=float, metavar="MS", help="TTFT that is good enough")
    parser.add_argument("--slo-tpot", type=float, metavar="MS", help="TPOT that is good enough")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="of silence; 600 seconds"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw every request, as SVG")


def run(args: argparse.Namespace, config: Config) -> int:
    from rich.console import Console

    from edgeserve.bench.load.plot import load_svg
    from edgeserve.bench.load.screen import show
    from edgeserve.bench.load.session import load

    for option, path in (("--json", args.json), ("--plot", args.plot)):
        require_folder(option, path)
    report = load(_options(args), say())
    show(report, Console(file=sys.stdout, no_color=config.no_color, highlight=False))
    if args.json is not None:
        args.json.write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")
    if args.plot is not None:
        args.plot.write_text(load_svg(report), encoding="utf-8")
    return 0


def _options(args: argparse.Namespace) -> LoadOptions:
    from edgeserve.bench.load.drive import Concurrent, Poisson
    from edgeserve.bench.load.figures import Slo
    from edgeserve.bench.load.prompts import Shape
    from edgeserve.bench.load.session import LoadOptions
    from edgeserve.bench.load.stream import Ask
    from edgeserve.remote_models import base_url

    url = base_url(args.url)
    pacing = Concurrent(args.concurrency) if args.rate is None else Poisson(args.rate, args.seed)
    return LoadOptions(
        url=url,
        shape=Shape(args.requests, args.turns, args.shared_prefix, args.unique),
        pacing=pacing,
        slo=Slo(_seconds(args.slo_ttft), _seconds(args.slo_tpot)),
        seed=args.seed,
        warmup=args.warmup,
        timeout_s=args.timeout,
        key=args.api_key,
        ask=Ask(
            model=_first_model(url, args.api_key) if args.model is None else args.model,
            max_tokens=args.max_tokens,
            temperature=args.temperature,
            ignore_eos=args.ignore_eos,
        ),
    )


def _first_model(url: str, key: str | None) -> str:
    from edgeserve.remote_models import remote_models

    models = remote_models(url, key, timeout_s=_ASKING_S)
    if not models:
        raise ServerRefusedError(url, 200, "it lists no model; name one with --model")
    return models[0].id


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
