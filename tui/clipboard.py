"""Text to the clipboard: by a program of this machine, tmux, the terminal (OSC 52), else a file.

Says only what is known: that a program took it, that the terminal was asked, or where the file is.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from edgeserve.terminal import Terminal
from edgeserve.tui.wording import at_home

_MAX_OSC_BYTES = 74_000
"""Of base64: what xterm, and tmux, take in one sequence."""

_TIMEOUT_S = 3.0


class Clipboard:
    """`write` puts bytes on the terminal, as they are; `find` says where a program is."""

    def __init__(
        self,
        terminal: Terminal,
        write: Callable[[str], None],
        *,
        folder: Path,
        find: Callable[[str], str | None] = shutil.which,
    ) -> None:
        self._terminal = terminal
        self._write = write
        self._folder = folder
        self._find = find

    async def copy(self, text: str) -> str:
        """What became of it, in words."""
        if not self._terminal.over_ssh:
            for command in self._commands():
                if await _fed(command, text):
                    return f"copied, by {Path(command[0]).name}"
        tmux = self._find("tmux") if self._terminal.in_tmux else None
        # It passes no sequence of ours on unless it is told to; it can be asked instead.
        if tmux is not None and await _fed((tmux, "load-buffer", "-w", "-"), text):
            return "in tmux's buffer (prefix ] pastes it), sent on to your terminal"
        encoded = base64.b64encode(text.encode("utf-8", "replace")).decode()
        if self._terminal.over_ssh and len(encoded) <= _MAX_OSC_BYTES:
            self._write(_osc52(encoded, self._terminal))
            return "sent to your terminal's clipboard, if it allows that (OSC 52)"
        return await asyncio.to_thread(self._to_file, text)

    def _commands(self) -> Sequence[Sequence[str]]:
        """Those that can work here."""
        wanted: list[tuple[str, ...]] = [("pbcopy",)]
        if self._terminal.has_wayland:
            wanted.append(("wl-copy",))
        if self._terminal.has_x11:
            wanted += [("xclip", "-selection", "clipboard"), ("xsel", "--clipboard", "--input")]
        wanted.append(("clip.exe",))
        found = ((self._find(words[0]), words) for words in wanted)
        return [(path, *words[1:]) for path, words in found if path is not None]

    def _to_file(self, text: str) -> str:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._folder / "copied.txt"
            handle, name = tempfile.mkstemp(prefix="copied-", dir=self._folder)
            with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
                file.write(text)
            Path(name).replace(path)
        except OSError as error:
            return f"not copied: no program for it here, and no file: {error.strerror}"
        return f"no clipboard here: written to {at_home(path)}"


async def _fed(command: Sequence[str], text: str) -> bool:
    """Whether a program took the text and ended well; wl-copy and xclip leave a child behind."""
    raw = text.encode("utf-16-le" if command[0].endswith("clip.exe") else "utf-8", "replace")
    nowhere = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=nowhere, stderr=nowhere
        )
    except OSError:
        return False
    try:
        await asyncio.wait_for(process.communicate(raw), _TIMEOUT_S)
    except (TimeoutError, BrokenPipeError, ConnectionResetError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return False
    return process.returncode == 0


def _osc52(encoded: str, terminal: Terminal) -> str:
    """Through tmux and screen to the terminal outside: they pass on what is wrapped so."""
    sequence = f"\x1b]52;c;{encoded}\a"
    if terminal.in_tmux:
        return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    if terminal.in_screen:
        return f"\x1bP{sequence}\x1b\\"
    return sequence
