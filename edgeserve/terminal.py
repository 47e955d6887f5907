"""What a terminal can do, and what the user runs around it, as the environment says."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping

from edgeserve.frozen import frozen


@frozen
class Terminal:
    """`editor` is a command line in words. `is_ascii` where the locale knows no more,
    `is_colourless` where the user wants no colours."""

    is_ascii: bool = False
    is_dumb: bool = False
    is_colourless: bool = False
    over_ssh: bool = False
    in_tmux: bool = False
    in_screen: bool = False
    has_wayland: bool = False
    has_x11: bool = False
    editor: tuple[str, ...] = ("vi",)

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str], *, platform: str = sys.platform
    ) -> Terminal:
        term = environ.get("TERM", "")
        chosen = environ.get("VISUAL") or environ.get("EDITOR") or ""
        fallback = "notepad" if platform == "win32" else "vi"
        return cls(
            is_ascii=platform != "win32" and not _is_utf8(environ),
            is_dumb=platform != "win32" and term in ("", "dumb"),
            is_colourless=environ.get("NO_COLOR", "") != "",
            over_ssh=bool(environ.get("SSH_CONNECTION") or environ.get("SSH_TTY")),
            in_tmux=bool(environ.get("TMUX")),
            in_screen=term.startswith("screen") and not environ.get("TMUX"),
            has_wayland=bool(environ.get("WAYLAND_DISPLAY")),
            has_x11=bool(environ.get("DISPLAY")),
            editor=tuple(_words(chosen)) or (fallback,),
        )


def is_at_a_terminal() -> bool:
    """Whether somebody types what is read, and sees what is written."""
    streams = (sys.stdin, sys.stdout)
    return all(stream is not None and stream.isatty() for stream in streams)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote that is not closed
        return command.split()


def _is_utf8(environ: Mapping[str, str]) -> bool:
    """By the locale. Python itself sets LC_CTYPE where the locale is C (PEP 538): that does not
    make the terminal one that shows more."""
    language = environ.get("LANG", "")
    character = environ.get("LC_CTYPE", "")
    if character.upper() == "C.UTF-8" and language in ("", "C", "POSIX"):
        character = ""
    chosen = environ.get("LC_ALL") or character or language
    return "utf8" in chosen.lower().replace("-", "")
