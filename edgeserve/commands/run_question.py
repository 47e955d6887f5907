"""What `edgeserve run` asks, and which model: words of the command line, a prompt file, a pipe."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from edgeserve.config import Config
from edgeserve.errors import InvalidRequestError

_INPUT = "input"
"""The variable of a prompt file that stands for what is piped in."""


def model_and_words(model: str | None, words: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The model that is named, and the words of the question: the first word is the model where it
    can be nothing else. Raises ModelNotFoundError for what is nearly a model's name."""
    if model is not None or not words:
        return model, words
    first, *rest = words
    if first.lower().endswith(".gguf"):
        return first, rest
    from edgeserve.commands.chosen_model import names_model, require_no_misspelling
    from edgeserve.loader.catalog import load_catalog

    catalog = load_catalog()
    if names_model(first, catalog):
        return first, rest
    if rest and " " not in first:
        require_no_misspelling(first, catalog)
    return None, words


def question_text(args: argparse.Namespace, words: Sequence[str], config: Config) -> str:
    """The prompt file's text, the words, then what was piped in, each after an empty line.

    A prompt file that has {{input}} gets there what is piped in, or else the words.
    Raises InvalidRequestError where there is nothing, PromptNotFoundError, PromptVariableError.
    """
    said, piped = " ".join(words), _piped()
    parts = [said, piped]
    if args.prompt_file is not None:
        parts = _filled(args, said, piped, config)
    elif args.values:
        raise InvalidRequestError("--set", args.values[0], "left out without a prompt file (-f)")
    text = "\n\n".join(part for part in parts if part.strip())
    if not text:
        raise InvalidRequestError("PROMPT", "", 'a text: edgeserve run MODEL "question"')
    return text


def _filled(args: argparse.Namespace, said: str, piped: str, config: Config) -> list[str]:
    from edgeserve.chats.prompt_library import PromptLibrary

    prompt = PromptLibrary(config.prompt_files_dir).prompt(args.prompt_file)
    values = dict(_pair(each) for each in args.values)
    if _INPUT in prompt.variables and _INPUT not in values:
        if piped.strip():
            values[_INPUT], piped = piped, ""
        elif said:
            values[_INPUT], said = said, ""
    return [prompt.filled(values), said, piped]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidRequestError("--set", text, "NAME=VALUE")
    return name, value


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
