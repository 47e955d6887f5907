"""The command line: arguments in, one command called, errors out as one line and an exit code.

Knows the commands by name only; a command's module is imported when it is the one that was asked.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol, cast

from edgeserve.config import Config
from edgeserve.errors import EdgeServeError
from edgeserve.frozen import frozen
from edgeserve.terminal import is_at_a_terminal

DISTRIBUTION = "edgeserve-llm"
_INTERRUPTED = 130
_BROKEN_PIPE = 141
# Objects made between two collections: starting makes hundreds of thousands that all stay, and
# with Python's 700 a sixth of its time goes into looking at them again and again.
_COLLECTED_AFTER = 100_000
_EPILOG = """\
exit codes:
  0    done
  1    an error of no other kind
  2    wrong arguments, or a value that is not allowed
  3    the model file is damaged, or of a kind that cannot be run
  4    the chat template failed
  5    the model was not found or could not be fetched
  130  interrupted by Ctrl-C
  141  whoever read the output went away
"""


@frozen
class Command:
    """Where a command lives, and its line in `edgeserve --help`."""

    module: str
    summary: str


class CommandModule(Protocol):
    """What a module in edgeserve/commands offers."""

    DESCRIPTION: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace, config: Config) -> int: ...


COMMANDS = {
    "chat": Command("edgeserve.commands.chat", "chat with a model in the terminal"),
    "run": Command("edgeserve.commands.run", "answer a prompt, streaming"),
    "replay": Command("edgeserve.commands.replay", "answer a chat again, and compare"),
    "serve": Command("edgeserve.commands.serve", "serve a model behind OpenAI's API"),
    "pull": Command("edgeserve.commands.pull", "fetch a model"),
    "list": Command("edgeserve.commands.list", "print the models on this machine, and known ones"),
    "info": Command("edgeserve.commands.info", "print what a model is, and whether it fits here"),
    "cache": Command("edgeserve.commands.cache", "print what is kept of prompts, or erase it"),
    "bench": Command("edgeserve.commands.bench", "measure how fast a model computes here"),
    "bench serve": Command("edgeserve.commands.bench_serve", "measure any server under load"),
    "connect": Command("edgeserve.commands.connect", "print a client's settings for a server"),
    "doctor": Command("edgeserve.commands.doctor", "print what computes here, and what is missing"),
}


_DELETING = "a model is its file, which `edgeserve info MODEL` names: delete that"
_OTHERS_WORDS = {
    **dict.fromkeys(("rm", "remove", "delete"), _DELETING),
    "show": "did you mean edgeserve info?",
    "ps": "`/v1/models` of a running server says what is loaded",
}
"""Commands that programs like this one have, and what does it here."""


class _Parser(argparse.ArgumentParser):
    """Argparse, but an error is one line like all others."""

    def error(self, message: str) -> NoReturn:
        print(f"edgeserve: error: {message}; {self.prog} --help shows how", file=sys.stderr)
        raise SystemExit(2)


class _CommandParser(_Parser):
    """A command's arguments, in any order: `run MODEL --seed 1 PROMPT`, which argparse refuses.

    argparse asks a command's parser for `parse_known_args` only, and the intermixed form asks it
    in turn.
    """

    _is_intermixing = False

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride]  three overloads
        self, args: Any = None, namespace: Any = None
    ) -> Any:
        if self._is_intermixing:
            return super().parse_known_args(args, namespace)
        self._is_intermixing = True
        try:
            found, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixing = False
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        if options:  # said here: the parser above knows neither the command nor its options
            self.error(f"{options[0]} is no option{self._meant(options[0])}")
        return found, unknown

    def _meant(self, option: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(option, self._option_string_actions, n=1)
        return "".join(f"; did you mean {each}?" for each in near)


class _Version(argparse.Action):
    """Prints the version; looked up only then, for it takes a search through site-packages."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib import metadata

        try:
            version = metadata.version(DISTRIBUTION)
        except metadata.PackageNotFoundError:
            version = "(run from its source, not installed)"
        print(f"edgeserve {version}")
        parser.exit()


def program() -> NoReturn:
    """What the shell starts: `main`, and no teardown of a hundred modules (0.1 s) after it."""
    _open_what_is_closed()
    code = main()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.flush()
    os._exit(code)


def _open_what_is_closed() -> None:
    """Of a stream that the shell closed (`>&-`) Python has None, and the next file that is opened,
    be it the chats', gets its number and what is printed. It goes nowhere instead."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit code."""
    gc.set_threshold(_COLLECTED_AFTER)
    _make_output_robust()
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except EdgeServeError as error:
        print(f"edgeserve: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\nedgeserve: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return _BROKEN_PIPE
    except OSError as error:  # such as a full disk behind the output
        _drop_output()
        print(f"edgeserve: error: {error}", file=sys.stderr)
        return EdgeServeError.exit_code


def _drop_output() -> None:
    """Python flushes stdout once more at its end, which must not fail a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str]) -> int:
    if _means_chat(argv):
        argv = ["chat", *argv]
    argv = _joined(argv)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    if chosen is not None and chosen not in COMMANDS:
        _Parser(prog="edgeserve").error(f"{chosen} is no command{_meant(chosen)}")
    parser, module = _parser(chosen)
    args = parser.parse_args(argv)
    if module is None:
        parser.print_help()
        return 0
    code = module.run(args, Config.from_environment())
    if sys.stdout is not None:  # as it is when the shell says >&-
        sys.stdout.flush()
    return code


def _means_chat(argv: Sequence[str]) -> bool:
    """`edgeserve` alone at a terminal, and with options: those are chat's, but for two."""
    if not argv:
        return is_at_a_terminal()
    own = ("-h", "--help", "--version")
    return argv[0].startswith("-") and argv[0] not in own and not COMMANDS.keys() & set(argv)


def _meant(word: str) -> str:
    """A hint at what was meant by a word that is no command, as far as can be told."""
    from difflib import get_close_matches

    from edgeserve.commands.chosen_model import names_model
    from edgeserve.loader.catalog import load_catalog

    if word in _OTHERS_WORDS:
        return f"; {_OTHERS_WORDS[word]}"
    is_model = names_model(word, load_catalog())
    near = [f"chat {word}"] if is_model else get_close_matches(word.lower(), COMMANDS, n=1)
    return "".join(f"; did you mean edgeserve {each}?" for each in near)


def _joined(argv: Sequence[str]) -> list[str]:
    """Argparse knows a command by one word: `bench serve` becomes that."""
    words = list(argv)
    at = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
    both = " ".join(words[at : at + 2])
    return [*words[:at], both, *words[at + 2 :]] if both in COMMANDS else words


def _parser(chosen: str | None) -> tuple[argparse.ArgumentParser, CommandModule | None]:
    """The parser, in which only the chosen command has its arguments, and that command."""
    parser = _Parser(
        prog="edgeserve",
        description="Run a GGUF language model on the machine in front of you.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(
        metavar="COMMAND", title="commands", parser_class=_CommandParser
    )
    module = None
    for name, command in COMMANDS.items():
        if name != chosen:
            commands.add_parser(name, help=command.summary)
            continue
        module = cast(CommandModule, importlib.import_module(command.module))
        own = commands.add_parser(
            name,
            help=command.summary,
            description=module.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(own)
    return parser, module


def _make_output_robust() -> None:
    """Under LANG=C a character that cannot be written becomes `?`, never an exception."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    program()
