"""Options that say how answers are sampled, for the commands that ask: `run` and `chat`."""

from __future__ import annotations

import argparse

SETTINGS = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "max_tokens",
    "seed",
)
"""Options that are kept with an answer, by their names in ChatSettings."""


def add_sampling_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--temperature", type=float, metavar="X", help="0 is greedy")
    parser.add_argument("--top-p", type=float, metavar="X", help="1 is off")
    parser.add_argument("--top-k", type=int, metavar="N", help="0 is off")
    parser.add_argument("--min-p", type=float, metavar="X", help="0 is off")
    parser.add_argument("--repetition-penalty", type=float, metavar="X", help="1 is off")
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed, the same answer")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="stop after so many")


def given_settings(args: argparse.Namespace) -> dict[str, object]:
    """Those that were said, by name."""
    given = {name: getattr(args, name) for name in SETTINGS}
    return {name: value for name, value in given.items() if value is not None}
