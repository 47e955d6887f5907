"""`edgeserve run`: one prompt in, one answer streamed out."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from edgeserve.commands.engine_arguments import add_engine_arguments, engine_fields
from edgeserve.config import Config, keep_numpy_to_one_thread
from edgeserve.errors import InvalidRequestError

if TYPE_CHECKING:
    from edgeserve.llm import LLM, TokenStream
    from edgeserve.types import Message, SamplingParams

DESCRIPTION = """\
Answer PROMPT, streaming, through the model's chat template where it has one.

  edgeserve run smollm2 "What is a monad?"
  git diff | edgeserve run smollm2 "review this"     what is piped in follows the prompt

MODEL is a path, a name that `edgeserve list` prints, hf:owner/repository or pypi:distribution.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="which model; see above")
    parser.add_argument("prompt", metavar="PROMPT", nargs="*", help="what to ask")
    parser.add_argument("--system", metavar="TEXT", help="a system message before the prompt")
    parser.add_argument("--raw", action="store_true", help="continue the text as it is")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--temperature", type=float, metavar="X", help="0 is greedy")
    parser.add_argument("--top-p", type=float, metavar="X", help="1 is off")
    parser.add_argument("--top-k", type=int, metavar="N", help="0 is off")
    parser.add_argument("--min-p", type=float, metavar="X", help="0 is off")
    parser.add_argument("--repetition-penalty", type=float, metavar="X", help="1 is off")
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed, the same answer")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="stop after so many")
    parser.add_argument("--stop", action="append", metavar="TEXT", help="stop before it; repeats")
    add_engine_arguments(parser)


def run(args: argparse.Namespace, config: Config) -> int:
    prompt = _prompt(args)
    if args.device != "oracle":
        keep_numpy_to_one_thread()
    from edgeserve.commands.license import license_gate
    from edgeserve.commands.progress import progress_on
    from edgeserve.llm import LLM

    params = _sampling(args)
    with (
        LLM(
            args.model,
            config=config,
            progress=progress_on(sys.stderr, config),
            license_gate=license_gate(args.accept_license),
            **engine_fields(args),
        ) as llm,
        _start(llm, args, prompt, params) as stream,
    ):
        if args.max_model_len is None and llm.context_note and sys.stderr.isatty():
            print(f"[{llm.context_note}]", file=sys.stderr)
        _show(stream, args)
    if not args.json:
        _advise(args.model, config)
    return 0


def _prompt(args: argparse.Namespace) -> str:
    """The words of the command line, then what was piped in."""
    words, piped = " ".join(args.prompt), _piped()
    prompt = "\n\n".join(part for part in (words, piped) if part.strip())
    if not prompt:
        raise InvalidRequestError("PROMPT", "", 'a text: edgeserve run MODEL "question"')
    return prompt


def _piped() -> str:
    """Standard input, as UTF-8 whatever the locale says; nothing at a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} at {error.start}"
        raise InvalidRequestError("standard input", found, "UTF-8 text") from None
    except OSError as error:
        raise InvalidRequestError("standard input", str(error), "readable") from None


def _sampling(args: argparse.Namespace) -> SamplingParams:
    from edgeserve.types import SamplingParams

    return SamplingParams(
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        seed=args.seed,
        max_tokens=args.max_tokens,
        stop=args.stop,
    )


def _start(llm: LLM, args: argparse.Namespace, prompt: str, params: SamplingParams) -> TokenStream:
    if args.raw or not llm.has_chat_template:
        if args.system:
            raise InvalidRequestError("--system", args.system, "left out with a raw prompt")
        return llm.stream({"prompt": prompt}, params)
    messages: list[Message] = [{"role": "user", "content": prompt}]
    if args.system:
        messages.insert(0, {"role": "system", "content": args.system})
    return llm.stream(messages, params)


def _show(stream: TokenStream, args: argparse.Namespace) -> None:
    for chunk in stream:
        if not args.json:
            print(chunk.text, end="", flush=True)
    output = stream.output
    assert output is not None  # the stream has ended without an error
    if args.json:
        answer = output.outputs[0]
        print(
            json.dumps(
                {
                    "model": args.model,
                    "text": answer.text,
                    "finish_reason": answer.finish_reason,
                    "seed": answer.seed,
                    "token_ids": answer.token_ids,
                    "usage": asdict(output.usage),
                    "timings": asdict(output.timings),
                },
                ensure_ascii=False,
            )
        )
        return
    print()
    if sys.stderr.isatty():
        timings, usage = output.timings, output.usage
        print(
            f"[{usage.prompt_tokens} tokens read, {usage.completion_tokens} written; first after "
            f"{timings.first_token_ms / 1e3:.2f} s, then {timings.decode_tokens_per_s:.1f} a "
            f"second; seed {output.outputs[0].seed}]",
            file=sys.stderr,
        )


def _advise(model: str, config: Config) -> None:
    """After the embedded default, which only proves the installation: what to run instead."""
    from edgeserve.loader.sources import looks_like_path

    if looks_like_path(model):
        return
    from edgeserve.loader.catalog import EMBEDDED_DEFAULT, load_catalog
    from edgeserve.loader.discovery import discover
    from edgeserve.loader.machine import (
        ASSUMED_BYTES_PER_S,
        available_memory,
        read_bandwidth_bytes_per_s,
    )
    from edgeserve.loader.recommend import recommend

    catalog = load_catalog()
    entry = catalog.find(model)
    if entry is None or entry.name != EMBEDDED_DEFAULT:
        return
    bandwidth = read_bandwidth_bytes_per_s() or ASSUMED_BYTES_PER_S
    advice = recommend(catalog, available_memory(), bandwidth)
    print(f"\n{entry.title} proves the installation and is no chat model.", file=sys.stderr)
    for line in advice.lines():
        print(line, file=sys.stderr)
    others = [found.name for found in discover(config) if not found.note]
    if others:
        shown = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
        print(f"Other programs keep models here that run as they are: {shown}", file=sys.stderr)
