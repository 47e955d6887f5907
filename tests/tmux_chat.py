"""`edgeserve chat` in tmux with a model that recites: what its tests open, type and look at."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgeserve.chats.records import Turn
from edgeserve.chats.store import ChatStore

from .reciting_model import SAID
from .tmux_terminal import TmuxTerminal, a_terminal

ALPHABET = SAID.strip()
ASKS = "Ask something"


@contextmanager
def a_shell(
    folder: Path, *, size: tuple[int, int] = (80, 24), environ: Mapping[str, str] = {}
) -> Iterator[TmuxTerminal]:
    """Where `./chat` is the program, which keeps everything in `folder`."""
    script = folder / "chat"
    program = f"{shlex.quote(sys.executable)} -m edgeserve.cli chat"
    script.write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    script.chmod(0o755)
    own = {"EDGESERVE_CACHE": str(folder), "EDGESERVE_DATA": str(folder / "data")}
    given = {**own, "COLORTERM": "truecolor", "HF_HUB_OFFLINE": "1"}
    with a_terminal(folder, size=size, environ={**given, **environ}) as terminal:
        yield terminal


def opened(terminal: TmuxTerminal, model: Path, *settings: str) -> None:
    terminal.type(f"./chat {shlex.quote(str(model))}", "Enter")
    terminal.shows(f"{model.stem} ", " of ")
    for setting in settings:
        terminal.type(f"/set {setting.replace('=', ' ')}", "Enter")
        terminal.shows(setting.replace("=", " = "))


def turns(folder: Path) -> Sequence[Turn]:
    """Of the chat that was written to last, the branch that is shown."""
    with ChatStore(folder / "data" / "chats.db") as store:
        chat = store.latest()
        return () if chat is None else store.turns(chat.id).branch(chat.leaf_id)


def is_recited(text: str) -> bool:
    """Every letter is there, and none twice."""
    return bool(text) and text == (SAID * (len(text) // len(SAID) + 1))[: len(text)]
