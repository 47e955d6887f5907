"""What `edgeserve run` asks, and which model: words of the command line, a prompt file, a pipe."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgeserve.config import Config
from edgeserve.errors import InvalidRequestError, UnfitOptionError
from edgeserve.typed_paths import is_file, path_of

if TYPE_CHECKING:
    from edgeserve.chats.prompt_library import Prompt

_INPUT = "input"
"""The variable of a prompt file that stands for what is piped in."""


def model_and_words(model: str | None, words: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The model that is named, and the words of the question: the first word is the model where it
    can be nothing else. Raises ModelNotFoundError for what can only be meant as an unknown one."""
    if model is not None or not words:
        return model, words
    first, *rest = words
    if first.lower().endswith(".gguf"):
        return first, rest
    from edgeserve.commands.chosen_model import (
        names_model,
        refuse_unknown_model,
        require_no_misspelling,
    )
    from edgeserve.loader.catalog import load_catalog

    catalog = load_catalog()
    if names_model(first, catalog):
        return first, rest
    if not _has_space(first):
        require_no_misspelling(first, catalog)
        if rest and (_looks_like_a_name(first) or any(map(_has_space, rest))):
            if os.path.isdir(path_of(first)):  # pathlib's raises for a name that is too long
                return first, rest  # to be told of the files in it
            refuse_unknown_model(first)
    return None, words


def _has_space(word: str) -> bool:
    return len(word.split()) > 1


def _looks_like_a_name(word: str) -> bool:
    """`gpt-4o`, `models/a`: what no sentence begins with, as a question without quotes might."""
    return re.fullmatch(r"[A-Za-z~./][^?!,]*[-_./:\\0-9][^?!,:]*", word) is not None


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
        raise UnfitOptionError("--set", "without a prompt file (-f)")
    text = "\n\n".join(part for part in parts if part.strip())
    if not text:
        raise InvalidRequestError("PROMPT", "", 'a text, as in edgeserve run smollm2 "question"')
    return text


def _filled(args: argparse.Namespace, said: str, piped: str, config: Config) -> list[str]:
    prompt = _prompt(args.prompt_file, config)
    values = dict(_pair(each) for each in args.values)
    if _INPUT in prompt.variables and _INPUT not in values:
        if piped.strip():
            values[_INPUT], piped = piped, ""
        elif said:
            values[_INPUT], said = said, ""
    return [prompt.filled(values), said, piped]


def _prompt(name: str, config: Config) -> Prompt:
    """A file where the word can be one and is, or else a prompt of the library."""
    from edgeserve.chats.prompt_library import PromptLibrary, prompt_in

    path = path_of(name)
    is_path = len(path.parts) > 1 or path.suffix.lower() in (".md", ".txt")
    is_plainly_one = path.is_absolute() or name.startswith(".") or path.suffix.lower() == ".txt"
    if is_plainly_one or (is_path and is_file(path)):
        return prompt_in(path)
    return PromptLibrary(config.prompt_files_dir).prompt(name)


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
