"""The options of an engine, for every command that loads a model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgeserve.commands.sizes import parse_size
from edgeserve.errors import InvalidRequestError

if TYPE_CHECKING:
    from edgeserve.engine_options import EngineFields


def add_engine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--max-model-len", type=int, metavar="N", help="context in tokens")
    parser.add_argument("--kv-cache-memory", type=parse_size, metavar="SIZE", help="such as 2G")
    parser.add_argument(
        "--kv-cache-dtype",
        default="f16",
        metavar="TYPE",
        help="f16, or q8_0 or q4_0 to save memory",
    )
    parser.add_argument(
        "--speculation",
        default="auto",
        metavar="HOW",
        help="auto; lookahead guesses more; off computes a token at a time",
    )
    parser.add_argument(
        "--draft-model", metavar="MODEL", help="a smaller one of the same vocabulary, to guess with"
    )
    parser.add_argument(
        "--no-disk-cache",
        dest="disk_cache",
        action="store_const",
        const=0,
        help="keep nothing of the prompt on disk",
    )
    parser.add_argument("--chat-template", type=Path, metavar="FILE", help="a Jinja template")
    parser.add_argument("--device", default="auto", metavar="NAME", help="auto, or oracle")
    parser.add_argument("--accept-license", action="store_true", help="accept the model's terms")


def engine_fields(args: argparse.Namespace) -> EngineFields:
    """What `add_engine_arguments` put there. Raises InvalidRequestError for the template's file."""
    return {
        "device": args.device,
        "max_model_len": args.max_model_len,
        "kv_cache_memory": args.kv_cache_memory,
        "kv_cache_dtype": args.kv_cache_dtype,
        "speculation": args.speculation,
        "draft_model": args.draft_model,
        "disk_cache": args.disk_cache,
        "chat_template": _template(args.chat_template),
    }


def _template(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError("--chat-template", str(path), f"a text file ({error})") from error
